"""The digests of a sweep's settings, in its record: `recipe.yaml` must not change between `run` and `resume`.

What is said of trials that have run, their ε among it, is computed from the recipe. Settings that change nothing of it
may change: where corpora and database are now, and what runs where.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from trainables.config.keys import identity

_FREE = frozenset({"description", "resources", "budget", "search.study", "training.device", "training.memory_batch"})


def digests_of(recipe: Recipe) -> dict[str, str]:
    """Return a digest of each setting that differs from its default, by its dotted path."""
    found: dict[str, str] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, dict) and path != "space":
            for name, inner in value.items():
                add(f"{path}.{name}" if path else name, inner)
        elif path == "space":
            found.update({f"space.{name}": _digest(one) for name, one in value.items()})
        elif not path.endswith(".path"):
            found[path] = _digest(value)

    add("", identity(recipe, _FREE))
    return found


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=lambda spec: spec.model_dump(mode="json"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_settings(kept: dict[str, str], recipe: Recipe, path: Path) -> None:
    """Raise if a setting has changed since `kept` was written.

    Args:
        path: the recipe's file.

    Raises:
        UserError: naming the settings.
    """
    now = digests_of(recipe)
    changed = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
    if changed:
        some = ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")
        raise UserError(
            f"{path}: {some} changed since the sweep began; allowed: the recipe as it was (run starts another sweep)"
        )
