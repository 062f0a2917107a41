"""What takes the steps: each optimiser and the average against a literal version, and a trial with each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.resuming import interrupted
from tests.support.tiny import corpus, run, spec, trial, weights
from tests.support.workers import run_workers
from trainables.config import TrainingSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, Split, encode
from trainables.measure.predictions import collect_predictions, utility_metrics
from trainables.models import build_model
from trainables.records.epochs import read_curve
from trainables.records.job import TrialJob
from trainables.training.trainer import averaged, make_optimizer

__all__ = ["corpus"]

RATE = 0.05
STEPS = 12
Steps = Iterator[tuple[int, torch.Tensor]]


def drawn(seed: int = 0) -> Steps:
    """The number of each step, the first one 1, and its gradient (5,)."""
    generator = torch.Generator().manual_seed(seed)
    return ((t, torch.randn(5, dtype=torch.float64, generator=generator)) for t in range(1, STEPS + 1))


def start() -> torch.Tensor:
    return torch.linspace(-1, 1, 5, dtype=torch.float64)


def literal_adam(steps: Steps, decay: float = 0.0) -> torch.Tensor:
    w, m, v = start(), torch.zeros(5), torch.zeros(5)
    for t, g in steps:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        w = w - RATE * decay * w
        w = w - RATE * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return w


def literal_momentum(steps: Steps, mu: float) -> torch.Tensor:
    w, v = start(), torch.zeros(5)
    for _, g in steps:
        v = mu * v + g
        w = w - RATE * v
    return w


def stepped(make: Callable[[nn.Parameter], torch.optim.Optimizer], steps: Steps) -> torch.Tensor:
    weight = nn.Parameter(start())
    optimizer = make(weight)
    for _, gradient in steps:
        weight.grad = gradient
        optimizer.step()
    return weight.detach()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, literal_adam(drawn())),
        ({"optimizer": "adamw"}, literal_adam(drawn(), 0.01)),
        ({"optimizer": "adamw", "weight_decay": 0.5}, literal_adam(drawn(), 0.5)),
        ({"optimizer": "sgd"}, literal_momentum(drawn(), 0)),
        ({"optimizer": "momentum"}, literal_momentum(drawn(), 0.9)),
        ({"optimizer": "momentum", "momentum": 0.5}, literal_momentum(drawn(), 0.5)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "literal",
)
def test_an_optimizer_is_what_its_name_says(settings: dict[str, Any], expected: torch.Tensor) -> None:
    training = TrainingSpec.model_validate({"learning_rate": RATE} | settings)
    found = stepped(lambda weight: make_optimizer(training, [weight]), drawn())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_the_average_is_the_weighted_sum_of_the_weights_that_were(decay: float) -> None:
    """Σ_i (1 - ψ_{i-1}) Π_{j≥i} ψ_j w_i with ψ_0 = 0: the weights from before the first step are not in it."""
    model = nn.Linear(3, 2).double()
    average = averaged(model, decay)
    psi = [0.0] + [min(decay, (1 + n) / (10 + n)) for n in range(1, STEPS)]
    history = []
    for step in range(STEPS):
        with torch.no_grad():
            model.weight += torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
        history.append(model.weight.detach().clone())
        average.update_parameters(model)
    shares = [(1 - psi[i]) * math.prod(psi[i + 1 :]) for i in range(STEPS)]
    assert sum(shares) == pytest.approx(1)
    expected = sum(share * w for share, w in zip(shares, history, strict=True))
    torch.testing.assert_close(average.module.weight.detach(), expected, rtol=1e-9, atol=1e-12)
    assert torch.equal(model.weight, history[-1])


def saved(folder: Path) -> dict[str, Any]:
    return torch.load(folder / "checkpoint.pt", weights_only=True)


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough utterances for two models of different weights to differ in SER."""
    folder = tmp_path_factory.mktemp("larger") / "encoded"
    encode(load_corpus(spec(corpus={"utterances": 600}).corpus), spec().model, folder)
    return folder


@pytest.mark.slow
def test_what_is_measured_and_released_is_the_average_and_training_goes_on_without_it(
    larger: Path, tmp_path: Path
) -> None:
    training = {"method": "sgd", "epochs": 3}
    plain, result = (
        run(larger, tmp_path / str(decay), 1, training=training | {"average": decay})[0] for decay in (None, 0.9)
    )
    raw, other = saved(tmp_path / "None"), saved(tmp_path / "0.9")
    assert all(torch.equal(raw["model"][name], other["model"][name]) for name in raw["model"])
    released = torch.load(tmp_path / "0.9" / "model.pt", weights_only=True)["state_dict"]
    assert released.keys() == raw["model"].keys()
    assert all(torch.equal(released[name], other["average"][f"module.{name}"]) for name in released)
    for split, of_raw, of_released in (
        ("valid", *(read_curve(tmp_path / decay)[-1]["valid_ser"] for decay in ("None", "0.9"))),
        ("test", plain.metrics["ser"], result.metrics["ser"]),
    ):
        assert ser(larger, raw["model"], split) == of_raw
        assert of_released == ser(larger, released, split)
    assert plain.metrics["ser"] != result.metrics["ser"]


def ser(corpus: Path, state: dict[str, torch.Tensor], split: Split) -> float:
    """Semantic error rate of a model of these weights."""
    encoded = EncodedCorpus.open(corpus)
    model = build_model(spec().model, encoded.labels, seed=0, vocabulary_size=encoded.vocabulary_size)
    model.load_state_dict(state)
    predictions = collect_predictions(model, encoded, split, device=torch.device("cpu"))
    assert predictions is not None
    return utility_metrics(predictions, encoded.labels)["ser"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adamw", "weight_decay": 0.1, "average": 0.5, "learning_rate_decay": "linear"},
        {"optimizer": "momentum", "momentum": 0.8},
    ],
    ids=lambda training: str(training["optimizer"]),
)
def test_a_trial_that_was_cut_off_ends_with_exactly_the_weights_of_one_that_was_not(
    training: dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    changes = {"training": training | {"epochs": 3}, "edp": {"decay": "exponential", "tau": 0.5}}
    whole = TrialJob(spec(**changes), corpus, tmp_path / "whole")
    cut = TrialJob(spec(**changes), corpus, tmp_path / "cut")
    run_workers(trial, 1, whole)
    run_workers(interrupted, 1, cut, 1)
    before = saved(cut.output)
    run_workers(trial, 1, cut)
    assert torch.equal(weights(cut.output), weights(whole.output))
    after = saved(cut.output)
    assert any(not torch.equal(before["model"][name], after["model"][name]) for name in after["model"])
