"""Standard output for results, standard error for everything else."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console

from sweeps.formatting.lines import print_line
from sweeps.formatting.names import as_path

PATH: dict[str, Any] = {"parser": as_path, "metavar": "PATH"}
"""Of every option and argument that is a path: `typer.Option(help=…, **PATH)`."""

_LONGEST = 4_000
"""Characters of a line."""


def _open_streams() -> None:
    """Where a standard stream is closed, nothing takes its place: the next file would get its number, and every line
    that is printed."""
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
    """Standard error under a number of its own: Ray's C++ writes to number 2, which leads to a log while Ray runs."""
    try:
        return open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:  # closed
        return sys.stderr


_open_streams()
# Bound to the streams as they are now: while Ray runs, what it prints is redirected to a log.
# Names and paths are shown as they are: brackets are no markup, and :x: is no emoji.
out = Console(file=sys.stdout, markup=False, emoji=False)
err = Console(file=_own_stderr(), markup=False, emoji=False)


def file_named(text: str) -> Path:
    """A file as an option names it, as `as_path`: `folder/` would lose its slash, and be one.

    Raises:
        typer.BadParameter: for a name that ends with a slash.
    """
    if str(text).endswith("/"):
        raise typer.BadParameter(f"{text} is a folder; allowed: a file")
    return as_path(text)


LIBRARIES = "loading Ray, PyTorch and MLflow"


@contextmanager
def busy(what: str) -> Iterator[Callable[[], None]]:
    """Tells whoever watches what the seconds go to, until they are over; in a log, nobody watches.

    Yields:
        What ends it before, for a question to be asked.
    """
    if err.is_terminal:
        with err.status(f"{what} …") as shown:
            yield shown.stop
    else:
        yield lambda: None


def print_json(document: Any) -> None:
    """One document on standard output. Infinity is written as Python's json writes and reads it."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """A mistake or a failure, as one line, whatever stands in what was typed or read."""
    if len(line) > _LONGEST:  # it repeats what was typed
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    printable = "".join(letter if letter.isprintable() else " " for letter in line)
    with suppress(OSError):  # nobody is there to read it
        print_line(err, f"edp-sweep: {printable}", style="bold red")
