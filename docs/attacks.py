"""A hook of MkDocs: writes the table of all attacks, from their registration."""

from __future__ import annotations

from typing import Any

from trainables.measure.attacks import every_attack

PLACE = "<!-- attacks -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the table in its place; MkDocs calls this for each page."""
    return markdown.replace(PLACE, table()) if PLACE in markdown else markdown


def table() -> str:
    """Return all attacks as a table of Markdown."""
    rows = [f"| `{attack.name}` | {attack.finds} | {attack.needs} |" for attack in every_attack()]
    return "\n".join(["| attack | finds members by | what its attacker needs |", "|---|---|---|", *rows])
