"""Standard output for results, standard error for everything else."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console

from sweeps.formatting.lines import print_line


def _own_stderr() -> TextIO:
    """Standard error under a number of its own: Ray's C++ writes to number 2, which leads to a log while Ray runs."""
    try:
        return open(os.dup(2), "w", buffering=1, encoding="utf-8", closefd=False)
    except OSError:  # closed
        return sys.stderr


# Bound to the streams as they are now: while Ray runs, what it prints is redirected to a log.
# Names and paths are shown as they are: brackets are no markup, and :x: is no emoji.
out = Console(file=sys.stdout, markup=False, emoji=False)
err = Console(file=_own_stderr(), markup=False, emoji=False)


def file_named(text: str) -> Path:
    """A file as an option names it: `folder/` would lose its slash, and be one.

    Raises:
        typer.BadParameter: for a name that ends with a slash.
    """
    if str(text).endswith("/"):
        raise typer.BadParameter(f"{text} is a folder; allowed: a file")
    return Path(text)


def print_json(document: Any) -> None:
    """One document on standard output. Infinity is written as Python's json writes and reads it."""
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def complain(line: str) -> None:
    """A mistake or a failure, as one line."""
    print_line(err, f"edp-sweep: {line}", style="bold red")
