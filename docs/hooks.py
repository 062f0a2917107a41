"""Hooks of MkDocs: the parts of the site that are written elsewhere in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from trainables.measure.attacks import every_attack

ROOT = Path(__file__).parents[1]
ATTACKS = "<!-- attacks -->"
FRONT = "<!-- front of the README -->"
MOVED = {"docs/": "", "dashboards/screenshots/": "screenshots/"}
"""Folders of the repository, by the place that the site has them at."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the table of attacks, the first screen of the README, and links as the site has them.

    MkDocs calls this for each page.
    """
    if ATTACKS in markdown:
        markdown = markdown.replace(ATTACKS, attack_table())
    if FRONT in markdown:
        markdown = markdown.replace(FRONT, front())
    return for_site(markdown)


def attack_table() -> str:
    """Return all attacks as a table of Markdown, from their registration."""
    rows = [f"| `{attack.name}` | {attack.finds} | {attack.needs} |" for attack in every_attack()]
    return "\n".join(["| attack | finds members by | what its attacker needs |", "|---|---|---|", *rows])


def front() -> str:
    """Return the first screen of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.split("<!-- front -->\n")[1].split("<!-- /front -->")[0]


def for_site(markdown: str) -> str:
    """Return a page with the repository's links as links of the site; replace a link to code by its text."""

    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        for folder, place in MOVED.items():
            if target.startswith(folder):
                return f"[{words}]({place}{target.removeprefix(folder)})"
        if target.startswith(("tests/", "examples/")):
            return words if "`" in words else f"{words} (`{target}`)"
        return match[0]

    return re.sub(r"(?<!`)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)", link, markdown)
