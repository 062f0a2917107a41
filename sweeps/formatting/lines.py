"""Lines of text, as they are: nothing of a name or a path is taken for markup, and nothing is cut or broken."""

from __future__ import annotations

from rich.console import Console


def print_line(console: Console, text: str, *, style: str | None = None) -> None:
    """Prints a line that a pipe, a log and a narrow terminal get whole."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
