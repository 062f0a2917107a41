"""Every key of a sweep and a training; as a program, of specs that have one setting more."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RANDOM_BERT = {"kind": "bert", "vocabulary": {"name": "health", "utterances": 60}, "hidden_size": 12}
TRIAL: dict[str, Any] = {
    "corpus": {"name": "communication", "utterances": 120},
    "shadow": {"corpus": {"name": "video", "utterances": 120}, "epochs": 1},
    "model": {"kind": "clc", "embeddings": {"corpus": {"name": "health", "utterances": 60}}, "head": {"bio": True}},
    "canaries": {"count": 3},
    "training": {"method": "sgd", "epochs": 2, "workers": 1},
    "edp": {"C": 0.5},
}
_REFERENCES = {"references_sgd", "references_own"}
_TRAINED = {"attack", "checkpoint"} | _REFERENCES
_ENCODED = {"corpus", "shadow"} | _TRAINED
CHANGED_BY: dict[str, set[str]] = {
    "trial": {"checkpoint"},
    "trial.corpus": {"corpus", "coins", "digest", "checkpoint"} | _REFERENCES,
    "trial.shadow": {"checkpoint"},
    "trial.shadow.corpus": {"shadow", "attack", "attack_on_bert", "checkpoint"},
    "trial.model": _TRAINED,
    "trial.model.head": _TRAINED,
    "trial.model.embeddings": _ENCODED,
    "trial.model.embeddings.corpus": _ENCODED,
    "trial.canaries": {"corpus", "coins", "checkpoint"} | _REFERENCES,
    "trial.training": {"attack_on_bert"} | _TRAINED,
    "trial.training.non_private": {"attack_on_bert"} | _TRAINED,
    "trial.edp": {"references_own", "checkpoint"},
}
"""The keys that a setting changes, by the spec that it is added to."""


def all_keys(folder: Path, trial: dict[str, Any] = TRIAL) -> dict[str, str]:
    """Return every key of a trial, by name."""
    from sweeps.engine.jobs.attack import _reference_key
    from sweeps.store.prepared import locate
    from trainables.config import TrialSpec
    from trainables.corpora import corpus_digest
    from trainables.training.checkpoint import spec_key

    spec = TrialSpec.model_validate(trial)
    prepared = locate(spec, folder)
    assert prepared.coins is not None
    with_bert = locate(spec.model_validate({**trial, "model": RANDOM_BERT}), folder)
    return {
        "corpus": prepared.corpus.name,
        "shadow": prepared.shadow.name,
        "attack": prepared.attack.name,
        "coins": prepared.coins.name,
        "attack_on_bert": with_bert.attack.name,
        "references_sgd": _reference_key(spec, prepared, "sgd"),
        "references_own": _reference_key(spec, prepared, "own"),
        "checkpoint": spec_key(spec),
        "digest": corpus_digest(spec.corpus),
    }


def _set(document: Any, path: list[str]) -> Any:
    """Return `document` with the new setting in the part that `path` leads to."""
    if not path:
        return {**document, "added": 1.0}
    if isinstance(document, list):
        return [_set(one, path[1:]) if str(i) == path[0] else one for i, one in enumerate(document)]
    return {**document, path[0]: _set(document.get(path[0], {}), path[1:])}


def _print_keys_with_a_new_setting(folder: Path) -> None:
    import edp.spec

    source = Path(edp.spec.__file__).read_text()
    before = "    model_config = ConfigDict("
    assert source.count(before) == 1
    changed = source.replace(before, f"    added: float = 0.0\n{before}")
    exec(compile(changed, "edp/spec.py", "exec"), vars(edp.spec))
    set_in = {}
    for place in CHANGED_BY:
        path = place.split(".")[1:]
        set_in[place] = all_keys(folder, _set(TRIAL, path))
    names = [spec.__name__ for spec in _below(edp.spec.Frozen) if "added" in spec.model_fields]
    print(json.dumps({"keys": all_keys(folder), "set_in": set_in, "added_to": names}))


def _below(base: type) -> list[Any]:
    return [one for below in base.__subclasses__() for one in (below, *_below(below))]


if __name__ == "__main__":
    _print_keys_with_a_new_setting(Path(sys.argv[1]))
