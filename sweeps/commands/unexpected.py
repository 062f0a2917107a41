"""The last resort: an unexpected error ends as one line, and its traceback in a log."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from platformdirs import user_log_path

from sweeps.text.secrets import redacted

_LOG = "errors.log"


def unexpected(error: BaseException) -> str:
    """Write the traceback of `error` to the log, and return the line that says what happened, and how to report it."""
    what = " ".join(f"{type(error).__name__}: {_first_line(error)}".split())
    place = _append("".join(traceback.format_exception(error)))
    return (
        f"unexpected {what.removesuffix(':')}; this is a fault of the program: please report it, with the command and "
        f"the traceback in {place}"
    )


def _first_line(error: BaseException) -> str:
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # an error that cannot say what it is
        return ""
    return lines[0][:200] if lines else ""


def _append(text: str) -> str:
    """Append `text` to the log, and return the place of the text in it."""
    for folder in (user_log_path("edp-sweeps"), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _LOG).open("a+", encoding="utf-8", errors="backslashreplace") as log:
                log.seek(0)
                line = sum(1 for _ in log) + 1
                log.write(redacted(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv)[:2000]}\n{text}\n"))
            return f"{folder / _LOG}, line {line}"
        except OSError:
            continue
    return "no log: neither the user's log folder nor the temporary one can be written"


@contextmanager
def logged_threads() -> Iterator[None]:
    """Write errors of threads, and of objects that are being cleared away, to the log while the block runs.

    Threads of servers and of trackers end by such errors, which no caller can catch.
    """
    before = threading.excepthook, sys.unraisablehook

    def in_thread(args: Any) -> None:
        _quietly(args.exc_type, args.exc_value, args.exc_traceback)

    def unraisable(args: Any) -> None:
        _quietly(args.exc_type, args.exc_value, args.exc_traceback)

    threading.excepthook, sys.unraisablehook = in_thread, unraisable
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before


def _quietly(kind: type[BaseException], error: BaseException | None, where: TracebackType | None) -> None:
    if not issubclass(kind, SystemExit):
        _append("".join(traceback.format_exception(kind, error, where)))
