"""Digests of what must not change after a sweep or a training has begun: its settings, and its corpora.

What is said of trials that have run, their ε among it, is computed from `recipe.yaml`. Settings that change nothing of
it may change: where corpora and database are now, and what runs where. A command that resumes a sweep, retrains a trial
or attacks its model must read the utterances that the model was trained on: with others the attack would take strangers
for members.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from trainables.config import CorpusSpec, TrialSpec
from trainables.config.keys import identity
from trainables.corpora import corpus_digest
from trainables.records.files import read_json_if_any, write_json

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


CORPORA = "corpora.json"


def keep_corpora(folder: Path, spec: TrialSpec) -> None:
    """Write the digest of each corpus that `spec` reads, by field."""
    digests = {field: corpus_digest(corpus, field) for field, corpus in _corpora(spec).items()}
    write_json(folder / CORPORA, digests)


def check_corpora(folder: Path, spec: TrialSpec) -> None:
    """Raise if a corpus has changed since `keep_corpora`. Skip a corpus whose digest was not kept.

    Raises:
        UserError: naming the field.
    """
    kept = read_json_if_any(folder / CORPORA, dict[str, str]) or {}
    for field, corpus in _corpora(spec).items():
        if kept.get(field) not in (None, corpus_digest(corpus, field)):
            raise UserError(
                f"{field} = {str(corpus.path or corpus.name)!r}: its content has changed since {folder.name} began; "
                "allowed: the corpus as it was"
            )


def _corpora(spec: TrialSpec) -> dict[str, CorpusSpec]:
    return {"corpus": spec.corpus, **spec.public_corpora}
