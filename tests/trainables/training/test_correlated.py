"""A trial with correlated noise: one order for all epochs, the same on all hardware, resumed without what it forgot."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from edp.ledger import Ledger
from edp.noise.source import BandedNoiseSource
from tests.support.resuming import epochs_run, interrupted
from tests.support.tiny import corpus, run, spec, weights
from tests.support.workers import run_workers
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.models import build_model
from trainables.records.job import TrialJob
from trainables.training.trainer import Trainer

__all__ = ["corpus"]

BANDED = {"noise_correlation": "banded"}


def orders(rank: int, world: int, folder: Path, kind: str, seed: int) -> list[list[list[int]]]:
    """Which examples each step of three epochs holds, micro-batch by micro-batch."""
    encoded, settings = EncodedCorpus.open(folder), spec(training={"seed": seed}, edp={"noise_correlation": kind})
    model = build_model(settings.model, encoded.labels, seed=0, vocabulary_size=encoded.vocabulary_size)
    trainer = Trainer(model, encoded, settings, torch.device("cpu"))
    return [
        [
            [int(i) for dealt in step for micro_batch in dealt for i in micro_batch]
            for step in trainer.sampler.epoch(epoch)
        ]
        for epoch in range(3)
    ]


@pytest.mark.slow
def test_an_example_takes_part_in_the_same_step_of_every_epoch_whatever_the_data_are(
    corpus: Path, tmp_path: Path
) -> None:
    first, *others = run_workers(orders, 1, corpus, "banded", 0)[0]
    assert others == [first, first]
    assert sorted(i for step in first for i in step) == list(range(EncodedCorpus.open(corpus).size("train")))
    other = spec(corpus={"name": "communication", "utterances": 200, "seed": 1})
    splits = load_corpus(other.corpus)
    as_many = replace(splits, train=splits.train[: sum(map(len, first))])
    encode(as_many, other.model, tmp_path / "other")
    assert run_workers(orders, 1, tmp_path / "other", "banded", 0)[0][0] == first
    assert run_workers(orders, 1, corpus, "banded", 1)[0][0] != first
    independent = run_workers(orders, 1, corpus, "none", 0)[0]
    assert independent[0] == first
    assert independent[1] != first


@pytest.mark.slow
@pytest.mark.parametrize("method", ["edp", "dpsgd"])
def test_one_and_two_workers_give_the_same_weights_at_the_price_of_independent_noise(
    method: str, corpus: Path, tmp_path: Path
) -> None:
    # Of dpsgd's micro-batches each has a noise stream of its own, and a sum of 16 rounds differently.
    training = {"method": method, "epochs": 2}
    results = {}
    for world in (1, 2):
        results[world] = run(corpus, tmp_path / str(world), world, training=training | {"workers": world}, edp=BANDED)[
            0
        ]
    torch.testing.assert_close(weights(tmp_path / "1"), weights(tmp_path / "2"), rtol=0, atol=2e-4)
    assert results[1].ledger == results[2].ledger
    assert {entry.mechanism.band for entry in results[1].ledger.entries} == {4}
    changes = {"edp": {"reproducible_noise": None}, "training": training}
    (independent,) = run(corpus, tmp_path / "independent", 1, **changes)
    (banded,) = run(corpus, tmp_path / "banded", 1, **{**changes, "edp": {**changes["edp"], **BANDED}})
    assert banded.metrics["epsilon"] == independent.metrics["epsilon"] < math.inf


def _keeping_its_noise(rank: int, world: int, job: TrialJob, after: int) -> list[bytes]:
    """Noise of the steps of a trial that is cut off, as the filter left it."""
    drawn: list[bytes] = []
    honest = BandedNoiseSource.add_

    def kept(self: BandedNoiseSource, *arguments: Any, **named: Any) -> None:
        honest(self, *arguments, **named)
        drawn.extend(x.numpy().tobytes()[:64] for x in self._past[0] if x.numel() >= 16)

    BandedNoiseSource.add_ = kept
    interrupted(rank, world, job, after)
    return drawn


@pytest.mark.slow
def test_a_resumed_run_has_the_ledger_of_a_whole_one_and_no_file_holds_the_noise_that_it_forgot(
    corpus: Path, tmp_path: Path
) -> None:
    training = {"epochs": 3}
    (whole,) = run(corpus, tmp_path / "whole", 1, training=training, edp=BANDED)
    cut = TrialJob(spec(training=training, edp=BANDED), corpus, tmp_path / "cut")
    (noise,) = run_workers(_keeping_its_noise, 1, cut, 2)
    assert len(set(noise)) == len(noise) > 0
    files = [path.read_bytes() for path in cut.output.rglob("*") if path.is_file()]
    assert files
    assert not [one for one in noise for content in files if one in content]
    saved = torch.load(cut.output / "checkpoint.pt", weights_only=True)
    assert Ledger.model_validate_json(saved["ledger"]) == whole.ledger.until(2)
    ((seen, resumed),) = run_workers(epochs_run, 1, cut)
    assert seen == [3]
    assert resumed.ledger == whole.ledger
    assert resumed.metrics["epsilon"] == whole.metrics["epsilon"]
    assert not torch.allclose(weights(cut.output), weights(tmp_path / "whole"), atol=1e-4), "another noise"


@pytest.mark.slow
def test_a_band_that_is_longer_than_an_epoch_ends_the_trial_with_the_reason(corpus: Path, tmp_path: Path) -> None:
    for message in run(corpus, tmp_path / "out", 2, training={"workers": 2}, edp=BANDED | {"band": 5}):
        assert message.startswith("edp.band = 5 is more than the steps of an epoch, 4")
