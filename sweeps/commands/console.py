"""Standard output for results, standard error for everything else: warnings, mistakes, and what takes its time."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from rich.console import Console

from sweeps.text.terminal import print_line

LIBRARIES = "loading Ray, PyTorch and MLflow"

_MAX_LINE = 4_000
"""Characters of a line that reports a mistake."""
_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")


def _open_streams() -> None:
    """Put the null device in the place of each standard stream that is closed.

    The next file that is opened would get the stream's number, and every line that is printed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that is no UTF-8, a terminal that lacks ε


def _own_stderr() -> TextIO:
    """Return standard error under a number of its own: Ray's C++ writes to 2, which leads to a log while Ray runs."""
    try:
        return open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:  # closed
        return sys.stderr


_open_streams()
# Bound to the streams as they are now: while Ray runs, what it prints is redirected to a log.
# Names and paths are shown as they are: brackets are no markup, and :x: is no emoji.
out = Console(file=sys.stdout, markup=False, emoji=False)
err = Console(file=_own_stderr(), markup=False, emoji=False)


@contextmanager
def busy(what: str) -> Iterator[Callable[[], None]]:
    """Show in a terminal, while the block runs, what the seconds go to.

    Yields:
        A function that ends the display early, so that a question can be asked.
    """
    if err.is_terminal:
        with err.status(f"{what} …") as shown:
            yield shown.stop
    else:
        yield lambda: None


def print_json(document: Any) -> None:
    """Print one document on standard output. Infinity is written as Python's json writes and reads it."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """Print a mistake or a failure as one line, whatever characters were typed or read."""
    if len(line) > _MAX_LINE:  # it repeats what was typed
        line = f"{line[: _MAX_LINE // 2]} … {line[-_MAX_LINE // 2 :]}"
    printable = "".join(letter if letter.isprintable() else " " for letter in line)
    with suppress(OSError):  # standard error has no reader
        print_line(err, f"edp-sweep: {printable}", style="bold red")


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_line(err, f"note: {record.getMessage()}")


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of our own packages as notes on standard error while the block runs."""
    handler = _Notes(logging.WARNING)
    loggers = [logging.getLogger(package) for package in _PACKAGES]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False  # or a library's handler would say it again, with the name of the module
    try:
        yield
    finally:
        for logger, propagated in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagated
