"""Lines of text printed as they are: no markup, no cut, no line break."""

from __future__ import annotations

from rich.console import Console

from sweeps.text.secrets import redacted


def print_line(console: Console, text: str, *, style: str | None = None) -> None:
    """Print a line unbroken, also to a pipe, a log or a narrow terminal. Hide secrets in it."""
    console.print(redacted(text), style=style, highlight=False, markup=False, emoji=False, soft_wrap=True)
