"""A private trial carries its own audit: its reading is written and goes on after a kill; an alarm fails the trial."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.edp.audited import noise_times, planted
from tests.support.resuming import epochs_run, interrupted
from tests.support.tiny import corpus, run, spec, trial, weights
from tests.support.workers import run_workers
from tests.trainables.training.test_neighbours import DPSGD, EDP, MODELS, POISSON, encoders, read, said, write
from tests.trainables.training.test_neighbours import trial as trial_of
from trainables.records.job import TrialJob, TrialResult
from trainables.training.process import alone
from trainables.workers.worker import run_trial

__all__ = ["corpus", "encoders"]

KEYS = {"epsilon_read", "epsilon_read_upper", "noise_factor_at_most", "noise_factor_at_least"}


@pytest.mark.slow
def test_a_private_trial_reads_its_noise_and_its_model_is_the_same_without(corpus: Path, tmp_path: Path) -> None:
    (result,) = run(corpus, tmp_path / "with", 1)
    (without,) = run(corpus, tmp_path / "without", 1, training={"audit": False})
    assert torch.equal(weights(tmp_path / "with"), weights(tmp_path / "without"))
    assert result.metrics.keys() >= KEYS
    assert not KEYS & without.metrics.keys()
    assert 0.9 < result.metrics["noise_factor_at_least"] < result.metrics["noise_factor_at_most"] < 1.1
    written = json.loads((tmp_path / "with" / "audit.json").read_text())
    assert written.pop("audit_alarm") is None
    assert all(0.8 < most < 1.6 for most in written.pop("layers").values())
    assert written == {name: result.metrics[name] for name in KEYS}
    reason = {"not_read": "training.audit is off"}
    assert json.loads((tmp_path / "without" / "audit.json").read_text()) == reason


@pytest.mark.slow
def test_a_trial_that_was_killed_reads_what_an_uninterrupted_one_reads(corpus: Path, tmp_path: Path) -> None:
    training = {"workers": 2, "epochs": 3}
    whole = run(corpus, tmp_path / "whole", 2, training=training)[0]
    cut = TrialJob(spec(training=training), corpus, tmp_path / "cut")
    run_workers(interrupted, 2, cut, 2)
    key = torch.load(cut.output / "checkpoint.pt", weights_only=True)["audit"]["key"]
    resumed = run_workers(epochs_run, 2, cut)[0]
    assert resumed[0] == [3]
    assert {k: resumed[1].metrics[k] for k in KEYS} == {k: whole.metrics[k] for k in KEYS}
    assert (cut.output / "audit.json").read_text() == (tmp_path / "whole" / "audit.json").read_text()
    for path in cut.output.rglob("*"):
        if path.is_file() and not path.name.startswith("checkpoint"):
            assert key.encode() not in path.read_bytes(), f"the coins' key is in {path.name}"


LAST = {"learning_rate": 0.01, "epochs": 6, "validate_every": 6}
TRAININGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "full, Adam, average": (DPSGD | LAST | {"batch_size": "full", "average": 0.9}, {"alpha": "private"}),
    "Poisson, momentum": (DPSGD | LAST | {"optimizer": "momentum", "momentum": 0.9}, POISSON),
    "micro-batches, decay": (EDP | LAST, {"decay": "linear", "tau": 0.1}),
    "users, Poisson": (DPSGD | LAST | {"batch_size": 3}, POISSON | {"unit": "user", "user_utterances": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "training"), list(zip(MODELS, TRAININGS, strict=True)))
def test_every_kind_of_training_is_read(model: str, training: str, encoders: Path, tmp_path: Path) -> None:
    settings, edp = TRAININGS[training]
    one = trial_of(MODELS[model], settings, {"z0": 2.0} | edp, encoders)
    own = one.model_copy(update={"corpus": write(tmp_path / "mine.jsonl", said())})
    encoded, _ = read(tmp_path / "mine.jsonl", said(), one.model)
    with alone():
        found = run_trial(TrialJob(own, encoded.folder, tmp_path / "out"), lambda epoch, metrics: None)
    assert found is not None
    # In 30 runs of each the bounds had a standard deviation of at most .03, about .95 and 1.05: six of them.
    assert found.metrics["noise_factor_at_least"] < found.metrics["noise_factor_at_most"]
    assert 0.77 < found.metrics["noise_factor_at_least"] < 1.13
    assert 0.87 < found.metrics["noise_factor_at_most"] < 1.23
    layers = json.loads((tmp_path / "out" / "audit.json").read_text())["layers"]
    assert min(layers.values()) > 0.85


def noise_too_small(rank: int, world: int, job: TrialJob) -> TrialResult | str | None:
    with planted(noise_times(0.7)):
        return trial(rank, world, job)


@pytest.mark.slow
def test_an_alarm_fails_the_trial_on_every_worker(corpus: Path, tmp_path: Path) -> None:
    job = TrialJob(spec(training={"workers": 2}), corpus, tmp_path / "out")
    for found in run_workers(noise_too_small, 2, job):
        assert "audit: the quietest step has 0.6" in str(found)
        assert "the noise over the clip is at most 0.7" in str(found)
    assert "at most 0.7" in json.loads((job.output / "audit.json").read_text())["audit_alarm"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edp", "why"),
    [
        ({"clip": "quantile"}, "the audit does not read clip = quantile"),
        ({"z0": 0.0}, "the audit reads noise, and z0 = 0 adds none"),
    ],
)
def test_what_is_not_read_is_said(edp: dict[str, Any], why: str, corpus: Path, tmp_path: Path) -> None:
    (result,) = run(corpus, tmp_path / "out", 1, edp=edp)
    assert not KEYS & result.metrics.keys()
    assert why in json.loads((tmp_path / "out" / "audit.json").read_text())["not_read"]
