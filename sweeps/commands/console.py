"""Standard output for results; standard error for everything else: warnings, errors and progress."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console

from sweeps.text.terminal import own_stderr, print_line

LIBRARIES = "loading Ray, PyTorch and MLflow"

_MAX_LINE = 4_000
"""Characters of a line that reports an error."""
_PACKAGES = ("edp", "trainables", "sweeps", "dashboards")


def _open_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise the next file that is opened gets the stream's number, and with it every line that is printed.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # For a name that is not UTF-8, and for a terminal that cannot show ε.
        sys.stdout.reconfigure(errors="backslashreplace")


for _size in ("COLUMNS", "LINES"):  # 0 is that of a terminal without a size: nothing would be printed
    if os.environ.get(_size, "").strip("0 ") == "":
        os.environ.pop(_size, None)
_open_streams()
# Bound to the streams as they are now, because `ray_session` redirects them to a log while Ray runs.
# Without markup and emoji, because names and paths may hold brackets or `:x:`.
out = Console(file=sys.stdout, markup=False, emoji=False)
err = Console(file=own_stderr(), markup=False, emoji=False)
BAR: Any = {"console": err, "transient": True, "disable": not err.is_terminal}
"""Options of `rich.progress.track` for a bar on standard error, in a terminal alone."""


@contextmanager
def busy(what: str) -> Iterator[Callable[[], None]]:
    """Show `what` in a terminal while the block runs.

    Yields:
        A function that ends the display early, so that a question can be asked.
    """
    if err.is_terminal:
        with err.status(f"{what} …") as shown:
            yield shown.stop
    else:
        yield lambda: None


def ask_to_register(warning: str, quiet: Callable[[], None] = lambda: None) -> bool:
    """Ask whether to register a model in spite of a warning. If standard input is not a terminal, warn and continue.

    Args:
        quiet: ends what `busy` shows.
    """
    quiet()
    if sys.stdin is not None and sys.stdin.isatty():
        return typer.confirm(f"{warning}. Register it all the same?", err=True)
    print_line(err, warning)
    return True


def print_json(document: Any) -> None:
    """Print one JSON document on standard output. An infinite number is written as `Infinity`."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """Print an error as one line, whatever characters the input had."""
    if len(line) > _MAX_LINE:  # it quotes long input
        line = f"{line[: _MAX_LINE // 2]} … {line[-_MAX_LINE // 2 :]}"
    printable = "".join(letter if letter.isprintable() else " " for letter in line)
    with suppress(OSError):  # the reader of standard error has ended
        print_line(err, f"edp-sweep: {printable}", style="bold red")


class _Notes(logging.Handler):
    """A handler that prints each record as a note."""

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
        logger.propagate = False  # a library's handler at the root would print the line a second time
    try:
        yield
    finally:
        for logger, propagated in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagated
