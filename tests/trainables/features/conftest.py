"""An encoder, and a corpus with its states."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.engine.prepare import ensure_states
from tests.support.encoder_folders import FROZEN_KINDS, make_encoder, make_frozen
from tests.support.frozen_heads import PRIVATE, model_spec
from trainables.config import CorpusSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import encode


@pytest.fixture(scope="package")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder("bert", tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="package")
def folder(encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoded corpus with the states of several trials."""
    place = tmp_path_factory.mktemp("corpus") / "private-0"
    spec = model_spec(encoder_folder)
    encode(load_corpus(CorpusSpec.model_validate(PRIVATE)), spec, place)
    models = [spec, model_spec(encoder_folder, layers="2", sentence="first")]
    ensure_states([place], models, lambda line: None)
    return place


@pytest.fixture(scope="package")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small random model of each family, by its name."""
    place = tmp_path_factory.mktemp("frozen")
    return {kind: make_frozen(kind, place / kind) for kind in FROZEN_KINDS}
