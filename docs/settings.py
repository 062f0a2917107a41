"""Write `docs/settings.md`, the tables of all settings, from the specs: `python docs/settings.py`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from sweeps.config.all_settings import Setting, settings

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# All settings

<!-- Written by `python docs/settings.py`, from the specs. Do not edit. -->

`edp-sweep settings WORD` prints the settings with a word in path or meaning.
`--set` changes any setting by its dotted path, as in `--set training.epochs=2`. `space` searches any setting below
`training`, `edp` and `model` ([Search](search.md)). A setting marked *(of `bert`)* belongs to that kind of model.
"""


def page() -> str:
    """Return the whole page: all settings, a table for each part."""
    lines = [HEAD]
    for part, found in groupby(sorted(settings(), key=lambda one: _part(one) != ""), key=_part):
        lines += [
            f"### `{part}`" if part else "### Top level",
            "",
            "| setting | allowed | default | meaning |",
            "|---|---|---|---|",
        ]
        for one in found:
            kind = f" (of `{one.kind}`)" if one.kind else ""
            cells = (f"`{one.path}`{kind}", one.allowed, one.default, one.meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _part(one: Setting) -> str:
    return one.path.partition(".")[0] if "." in one.path else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
