"""A trial that takes seconds, in worker processes of its own: without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.workers import run_workers
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import encode
from trainables.records.job import TrialFailed, TrialJob, TrialResult
from trainables.workers.worker import run_trial

SPEC: dict[str, Any] = {
    "corpus": {"name": "communication", "utterances": 120},
    "shadow": {"corpus": {"name": "video", "utterances": 120}},
    "model": {
        "kind": "clc",
        "embeddings": {"corpus": {"name": "health", "utterances": 60}, "epochs": 1},
        "embedding_size": 12,
        "hidden_size": 10,
        "layers": 1,
        "char_filters": 6,
        "dropout": 0.2,
    },
    "training": {"epochs": 2, "batch_size": 16, "micro_batches": 8, "workers": 1, "learning_rate": 1e-2},
    "edp": {"C": 0.5, "z0": 0.1, "reproducible_noise": 3},
}


RANDOM_BERT: dict[str, Any] = {
    "kind": "bert",
    "pretrained": None,
    "vocabulary": {"name": "health", "utterances": 60},
    "hidden_size": 12,
    "layers": 1,
    "heads": 2,
}


def spec(**changes: dict[str, Any]) -> TrialSpec:
    return TrialSpec.model_validate({k: v | changes.get(k, {}) for k, v in SPEC.items()})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "encoded"
    encode(load_corpus(spec().corpus), spec().model, folder)
    return folder


def trial(rank: int, world: int, job: TrialJob) -> TrialResult | str | None:
    try:
        return run_trial(job, lambda epoch, metrics: None)
    except TrialFailed as error:
        return str(error)


def run(corpus: Path, output: Path, world: int, **changes: dict[str, Any]) -> list[Any]:
    return run_workers(trial, world, TrialJob(spec(**changes), corpus, output))


def weights(output: Path) -> torch.Tensor:
    saved = torch.load(output / "model.pt", weights_only=True)["state_dict"]
    return torch.cat([tensor.flatten().float() for tensor in saved.values()])
