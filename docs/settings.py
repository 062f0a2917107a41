"""Write `docs/settings.md`, and the defaults that keys presume, from the specs: `python docs/settings.py`."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sweeps.config.all_settings import Setting, settings
from trainables.config import TrialSpec

PAGE = Path(__file__).with_name("settings.md")
DEFAULTS = Path(__file__).parents[1] / "tests/trainables/config/key_defaults.json"
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


def defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of a trial's settings, by spec. A changed one needs a new `KEY_VERSION` of `config.keys`."""
    found: dict[str, dict[str, Any]] = {}
    waiting: list[Any] = [TrialSpec]
    while waiting:
        part = waiting.pop()
        waiting += get_args(part)
        if isinstance(part, type) and issubclass(part, BaseModel) and part.__name__ not in found:
            fields = part.model_fields
            known = {name: one.default for name, one in fields.items() if one.default is not PydanticUndefined}
            found[part.__name__] = {
                name: one.model_dump(mode="json", exclude_defaults=True) if isinstance(one, BaseModel) else one
                for name, one in known.items()
            }
            waiting += [one.annotation for one in fields.values()]
    return dict(sorted(found.items()))


def write_defaults() -> None:
    """Add the defaults of new settings, and remove those that left. A changed default stays, for the test to refuse."""
    kept = json.loads(DEFAULTS.read_text())
    before = kept["defaults"]
    kept["defaults"] = {
        spec: {name: before.get(spec, {}).get(name, value) for name, value in now.items()}
        for spec, now in defaults().items()
    }
    DEFAULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    write_defaults()
