"""Lines of text, as they are: nothing of a name or a path is taken for markup, and nothing is cut or broken."""

from __future__ import annotations

from rich.console import Console

from sweeps.formatting.secrets import redacted


def print_line(console: Console, text: str, *, style: str | None = None) -> None:
    """Prints a line that a pipe, a log and a narrow terminal get whole; secrets in it are hidden."""
    console.print(redacted(text), style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)
