"""Tiny public corpora, a tiny encoder, and a pretraining of them in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import writers
from tests.support.encoder_folders import make_encoder
from trainables.corpora import generate
from trainables.corpora.types import Utterance
from trainables.pretraining.data import Pool, make_pool, read_utterances
from trainables.pretraining.run import pieces_of
from trainables.pretraining.spec import PretrainSpec

_CORPUS = generate("communication", 160, seed=5)
CORPORA: dict[str, list[Utterance]] = {
    "both": _CORPUS,
    "slots": [u._replace(intent="restaurant") for u in generate("health", 100, seed=5)],
    "intents": [u._replace(tags=("O",) * len(u.tokens)) for u in generate("video", 100, seed=5)],
}


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A recipe of two stages whose corpora and encoder are in `folder`, where they are made if they are missing."""
    if not folder.exists():
        make_encoder("bert", folder / "encoder")
        for name, utterances in CORPORA.items():
            writers.jsonl(utterances, folder / name)
    return {
        "corpora": [{"name": name, "path": str(folder / name)} for name in CORPORA],
        "model": {"pretrained": str(folder / "encoder")},
        "stages": [
            {"corpora": ["slots", "intents"], "steps": 30, "batch_size": 16, "learning_rate": 2e-3},
            {"corpora": ["both"], "replay": 40, "steps": 30, "batch_size": 16, "learning_rate": 2e-3},
        ],
        "training": {"warm_up": 5, "precision": "float32", "device": "cpu", "checkpoint_minutes": 0},
        **changes,
    }


def recipe(folder: Path, **changes: Any) -> PretrainSpec:
    return PretrainSpec.model_validate(settings(folder, **changes))


def pool_of(spec: PretrainSpec) -> Pool:
    return make_pool(spec.corpora, [read_utterances(corpus) for corpus in spec.corpora], pieces_of(spec))
