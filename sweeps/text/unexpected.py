"""Unexpected errors: one line on the terminal, the traceback in a log."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platformdirs import user_log_path

from sweeps.text.secrets import redacted
from trainables.records.files import cause_of, text_of

_LOG = "errors.log"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def unexpected(error: BaseException) -> str:
    """Write the traceback of `error` to the log. Return the line that says what happened and how to report it."""
    cause = cause_of(error)
    line = text_of(cause).strip().partition("\n")[0]
    what = " ".join(f"{type(cause).__name__}: {line[:200]}".split())
    place = _append("".join(traceback.format_exception(error)))
    return (
        f"unexpected {what.removesuffix(':')}; this is a bug: please report it, with the command and the traceback in "
        f"{place}"
    )


def _append(text: str) -> str:
    """Append `text` without its colours to the log, and return the log's path and the line where the text begins."""
    for place in (lambda: user_log_path("edp-sweeps"), lambda: Path(tempfile.gettempdir())):
        try:
            folder = place()
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _LOG).open("a+", encoding="utf-8", errors="backslashreplace") as log:
                log.seek(0)
                line = sum(1 for _ in log) + 1
                entry = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv)[:2000]}\n{text}\n"
                log.write(redacted(_COLOUR.sub("", entry)))
            return f"{folder / _LOG}, line {line}"
        except (OSError, RuntimeError):  # a container's user may have no home
            continue
    return "no log: neither the user's log folder nor the temporary one can be written"


@contextmanager
def logged_threads() -> Iterator[None]:
    """Write errors of threads and of finalizers to the log while the block runs.

    No caller can catch them. Threads of servers and of MLflow's client end with such errors.
    """
    before = threading.excepthook, sys.unraisablehook
    threading.excepthook = sys.unraisablehook = _log_quietly
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before


def _log_quietly(args: Any) -> None:
    """Log the error that Python passes to `threading.excepthook` or `sys.unraisablehook`."""
    if not issubclass(args.exc_type, SystemExit):
        _append("".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)))
