"""Tiny public corpora, and an encoder whose folder says that it has seen them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support import writers
from tests.support.encoder_folders import make_encoder
from trainables.config import CorpusSpec
from trainables.corpora import corpus_digest, generate
from trainables.corpora.overlap import ABOUT, HASHES, hashes_of
from trainables.corpora.types import Utterance

CORPORA: dict[str, list[Utterance]] = {
    "both": generate("communication", 160, seed=5),
    "slots": [u._replace(intent="restaurant") for u in generate("health", 100, seed=5)],
    "intents": [u._replace(tags=("O",) * len(u.tokens)) for u in generate("video", 100, seed=5)],
}


def write_corpora(folder: Path) -> list[CorpusSpec]:
    """Write the corpora to files in `folder`."""
    return [CorpusSpec(name=name, path=str(writers.jsonl(one, folder / name))) for name, one in CORPORA.items()]


def seen_encoder(folder: Path, corpora: list[CorpusSpec]) -> Path:
    """Make an encoder of random weights whose record names the corpora."""
    make_encoder("bert", folder)
    seen = [{"name": spec.name, "digest": corpus_digest(spec)} for spec in corpora]
    (folder / ABOUT).write_text(json.dumps({"corpora": seen, "earlier_corpora": []}))
    np.save(folder / HASHES, hashes_of(utterance for spec in corpora for utterance in CORPORA[spec.name]))
    return folder
