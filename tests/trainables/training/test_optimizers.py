"""What takes the steps: each optimiser and the average against a literal version, and a trial with each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.spec import EDPSpec
from tests.support.resuming import interrupted
from tests.support.steps import steps_of
from tests.support.tiny import corpus, run, spec, trial, weights
from tests.support.workers import run_workers
from trainables.config import TrainingSpec
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.features.encoding import encode
from trainables.measure.predictions import collect_predictions, utility_metrics
from trainables.models import build_model
from trainables.records.epochs import read_curve
from trainables.records.job import TrialJob
from trainables.training.optimizers import DPAdamBC, averaged, make_optimizer, noise_variances

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


def literal_adam_bc(steps: Steps, phi: Callable[[int], float], floor: float) -> torch.Tensor:
    """All sums written out, those of the noise's variance too."""
    w, gradients = start(), []
    for t, g in steps:
        gradients.append(g)
        m = sum(0.9 ** (t - i) * g for i, g in enumerate(gradients, 1)) * 0.1 / (1 - 0.9**t)
        v = sum(0.999 ** (t - i) * g**2 for i, g in enumerate(gradients, 1)) * 0.001 / (1 - 0.999**t)
        noise = sum(0.999 ** (t - i) * phi(i) for i in range(1, t + 1)) * 0.001 / (1 - 0.999**t)
        w = w - RATE * m / (v - noise).clamp(min=max(floor * noise, 1e-16)).sqrt()
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
    found = stepped(lambda weight: make_optimizer(training, [weight], None), drawn())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("phi", [lambda t: 0.3, lambda t: 0.8 * 0.7**t, lambda t: 3.0, lambda t: 0.0])
def test_dp_adam_bc_agrees_with_its_literal_version_also_where_the_noise_decays(phi: Callable[[int], float]) -> None:
    steps = itertools.count(1)
    found = stepped(
        lambda weight: DPAdamBC([weight], lr=RATE, noise_variances=lambda: [phi(next(steps))], floor=0.2), drawn()
    )
    torch.testing.assert_close(found, literal_adam_bc(drawn(), phi, 0.2), rtol=1e-9, atol=1e-12)


def without_noise(weight: nn.Parameter) -> DPAdamBC:
    return DPAdamBC([weight], lr=RATE, noise_variances=lambda: [0.0], floor=0.1)


def test_without_noise_dp_adam_bc_is_adam() -> None:
    torch.testing.assert_close(stepped(without_noise, drawn()), literal_adam(drawn()), rtol=0, atol=1e-6)


def test_without_noise_dp_adam_bc_divides_by_no_less_than_adams_epsilon() -> None:
    tiny = [(t, g * 1e-9) for t, g in drawn()]
    expected = literal_adam_bc(iter(tiny), lambda t: 0.0, 0.1)
    assert (expected - start()).abs().max() < RATE * STEPS / 2, "steps of a learning rate are for larger gradients"
    torch.testing.assert_close(stepped(without_noise, iter(tiny)), expected, rtol=1e-9, atol=1e-12)


def second_moments(signal: Callable[[torch.Generator], torch.Tensor], decay: float = 1.0) -> torch.Tensor:
    """What DP-AdamBC divides by, squared, over the noise's first variance, after 2,000 steps of `signal` and noise of a
    standard deviation that falls by `decay` in each; from its last step, whose numerator is Adam's."""
    size, std, generator = 4_000, 1e-3, torch.Generator().manual_seed(1)
    weight, m = nn.Parameter(torch.zeros(size, dtype=torch.float64)), torch.zeros(size, dtype=torch.float64)
    stds = [std * decay**t for t in range(2_000)]
    asked = iter(stds)
    optimizer = DPAdamBC([weight], lr=1.0, noise_variances=lambda: [next(asked) ** 2], floor=0.1)
    for now in stds:
        before = weight.detach().clone()
        weight.grad = now * torch.randn(size, dtype=torch.float64, generator=generator) + std * signal(generator)
        optimizer.step()
        m = 0.9 * m + 0.1 * weight.grad
    return ((m / (1 - 0.9 ** len(stds))) / (before - weight.detach())) ** 2 / std**2


@pytest.mark.slow
def test_of_nothing_but_noise_dp_adam_bc_finds_its_floor() -> None:
    found = second_moments(lambda generator: torch.zeros(4_000, dtype=torch.float64))
    assert float((found - 0.1).abs().quantile(0.95)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("decay", [1.0, 0.999])
def test_dp_adam_bc_finds_the_scale_of_a_signal_below_the_noise(decay: float) -> None:
    """A signal of 0.7 of the noise's standard deviation: Adam's second moment would be 1.49 and not 0.49 of φ."""
    found = second_moments(lambda generator: 0.7 * torch.randn(4_000, dtype=torch.float64, generator=generator), decay)
    # A coordinate's own spread is 5 %, so the mean's is less than 0.1 %.
    assert float(found.mean()) == pytest.approx(0.49, rel=0.01)


class ConstantGradient(nn.Module):
    """Two layers of which each has one gradient for all of its weights: what varies among them is noise alone."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(100, 100, bias=False), nn.Linear(400, 400, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.small.weight.sum() + 5 * self.large.weight.sum())


def noise_of(rank: int, world: int, settings: dict[str, Any], epoch: int) -> list[tuple[float, float]]:
    """The variance of each parameter's noise: what is said of it, and what it is."""
    ddp = one_bucket_ddp(ConstantGradient())
    hook = EDPHook(ddp, EDPSpec(**settings), micro_batches=4, single_example=False, rate=0.5)
    said = noise_variances(hook)
    steps = steps_of(hook, epoch)
    for _ in range(2 if hook.clip.moves else 1):
        next(steps)
        ddp.zero_grad()
        for last in (False, True) if world == 2 else (False, False, False, True):
            if last:
                ddp(torch.ones(1)).sum().backward()
            else:
                with ddp.no_sync():
                    ddp(torch.ones(1)).sum().backward()
                hook.accumulate()
    return [(v, float(p.grad.var())) for v, p in zip(said(), hook.parameters, strict=True) if p.grad is not None]


@pytest.mark.parametrize(
    ("settings", "world", "epoch"),
    [
        ({}, 1, 0),
        ({"noise": "paper"}, 2, 0),
        ({"decay": "exponential", "tau": 0.5}, 2, 3),
        ({"alpha_noise": "per_layer"}, 1, 0),
        ({"alpha_noise": "per_layer", "alpha": "paper"}, 1, 0),
        ({"reproducible_noise": 1, "alpha_noise": "per_layer"}, 2, 1),
        # Two steps: the first has moved the clip, whose noise the second has.
        ({"clip": "quantile", "clip_quantile": 0.9}, 2, 0),
    ],
    ids=str,
)
@pytest.mark.slow
def test_the_variance_that_dp_adam_bc_takes_out_is_the_noise_s(
    settings: dict[str, Any], world: int, epoch: int
) -> None:
    for found in run_workers(noise_of, world, {"C": 0.3, "z0": 2.0} | settings, epoch):
        for said, measured in found:
            assert said > 0
            # Of 10,000 coordinates, a variance's relative standard deviation is 1.4 %.
            assert measured == pytest.approx(said, rel=0.08)


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
        {"optimizer": "sgd", "average": 0.99},
        {"optimizer": "momentum", "momentum": 0.8},
        {"optimizer": "adam_bc", "noise_floor": 0.5, "average": 0.9},
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
