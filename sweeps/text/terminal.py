"""Lines, tables and commands for a terminal: nothing in them is cut, broken or read as markup."""

from __future__ import annotations

import functools
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Column, Table

from sweeps.text.secrets import redacted

_WORDS = 14
"""Width that a column of words keeps before other columns are left out."""


@functools.cache
def own_stderr() -> TextIO:
    """Return standard error under another number than 2, which is redirected to a log while Ray runs."""
    try:
        return open(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:  # closed
        return sys.stderr


def print_line(console: Console, text: str, *, style: str | None = None) -> None:
    """Print a line unbroken, also to a pipe or a log. Hide secrets in it.

    In a terminal, a line is broken between words, unless it holds a path or a command, which a reader may copy.
    """
    whole = not console.is_terminal or "/" in text or "edp-sweep" in text
    console.print(redacted(text), style=style, highlight=False, markup=False, emoji=False, soft_wrap=whole)


def command_line(command: str, *words: str | Path, storage: Path, tracking_uri: str | None = None) -> str:
    """Return `edp-sweep COMMAND WORDS…`, to be pasted into a shell in this process's folder.

    Args:
        storage: the folder of the sweeps; left out if it is the default of `--storage`.
        tracking_uri: MLflow's address, printed without secrets. None: the command finds the store by itself.
    """
    line = ["edp-sweep", command, *map(str, words)]
    if storage.resolve() != Path("runs").resolve():
        line += ["--storage", str(storage.resolve())]
    if tracking_uri is not None:
        line += ["--tracking-uri", redacted(tracking_uri)]
    return shlex.join(line)


def figures_table(title: str, caption: str, heads: Sequence[str], last: str | None = None) -> Table:
    """Return an empty table with a column of figures for each of `heads` and, if given, a column of words, `last`."""
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left", box=box.SIMPLE_HEAD)
    table.title_style, table.padding = "bold", (0, 1, 0, 0)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    if last is not None:
        table.add_column(last, overflow="fold")
    return table


def fitting(console: Console, tables: Iterable[Table]) -> Table:
    """Return the first of `tables` that fits the console, else the last. Order them from widest to narrowest."""
    for table in tables:
        if sum(_min_width(console, column) for column in table.columns) < console.width:
            break
    return table


def _min_width(console: Console, column: Column) -> int:
    """Return the width that a column needs, with the gap after it."""
    if not column.no_wrap:
        return _WORDS + 2
    return max(console.measure(cell).maximum for cell in (column.header, *column.cells)) + 2
