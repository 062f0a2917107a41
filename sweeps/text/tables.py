"""Tables of figures that a narrow terminal does not cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Column, Table

_WORDS = 14
"""Width reserved for the configuration before other columns are left out."""


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
    """Return the first of `tables` that fits the console; else the last. Order them from widest to narrowest."""
    for table in tables:
        if sum(_least(console, column) for column in table.columns) < console.width:
            break
    return table


def _least(console: Console, column: Column) -> int:
    """Return the width that a column needs, with the gap after it."""
    if not column.no_wrap:
        return _WORDS + 2
    return max(console.measure(cell).maximum for cell in (column.header, *column.cells)) + 2
