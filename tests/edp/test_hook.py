"""The hook is Algorithm 1: held against the literal transcription, against itself, and against theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
from edp.ledger import Ledger
from edp.mechanism import Mechanism
from edp.spec import EDPSpec
from tests.support.edp.literal import (
    DPSGD_POOL,
    drawn_examples,
    hook_dpsgd,
    hook_training,
    literal_dpsgd,
    literal_training,
    small_model,
)
from tests.support.steps import open_step
from tests.support.workers import run_workers

SHAPE = {"micro_batches": 8, "batch_size": 32, "epochs": 2, "steps": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"C": 0.05, "z0": 0.0},
        {"C": 100.0, "z0": 0.0},
        {"C": 0.05, "z0": 0.0, "alpha": "paper"},
        {"C": 0.05, "z0": 0.0, "alpha": "none"},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7, "noise": "paper", "alpha": "paper"},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7, "alpha_noise": "per_layer"},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7, "decay": "exponential", "tau": 0.5},
    ],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()),
)
def test_it_agrees_with_the_literal_algorithm_for_every_number_of_workers(settings: dict) -> None:
    spec = EDPSpec(**settings)
    expected = literal_training(spec, **SHAPE)
    assert not torch.equal(expected, torch.cat([p.detach().flatten() for p in small_model().parameters()]))
    for world in (1, 2, 8) if spec.C == 0.1 else (2,):
        results = run_workers(hook_training, world, spec, *SHAPE.values())
        for weights, ledger in results:
            torch.testing.assert_close(weights, expected, rtol=0, atol=2e-6)
            assert torch.equal(weights, results[0][0]), "workers ended with different weights"
            assert ledger == results[0][1]
        assert results[0][1].steps == SHAPE["epochs"] * SHAPE["steps"]
        assert [entry.epoch for entry in results[0][1].entries] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("micro_batches", [8, 16, 32])
@pytest.mark.parametrize(
    "settings",
    [
        {"C": 0.05, "z0": 0.0},
        {"C": 0.05, "z0": 0.0, "alpha": "paper"},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7, "alpha_noise": "per_layer"},
        {"C": 0.1, "z0": 0.5, "reproducible_noise": 7, "noise": "paper", "decay": "linear", "tau": 0.5},
    ],
    ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()),
)
def test_one_pass_over_all_micro_batches_agrees_with_the_literal_algorithm(settings: dict, micro_batches: int) -> None:
    spec, shape = EDPSpec(**settings), SHAPE | {"micro_batches": micro_batches}
    expected = literal_training(spec, **shape)
    for world, pieces in ((1, 1), (1, 3), (2, 1), (2, 3)) if spec.alpha == "paper" else ((1, 3), (8, 1)):
        results = run_workers(hook_training, world, spec, *shape.values(), pieces)
        for weights, ledger in results:
            torch.testing.assert_close(weights, expected, rtol=0, atol=2e-6)
            assert torch.equal(weights, results[0][0])
            assert ledger.steps == shape["epochs"] * shape["steps"]
            assert ledger.entries[0].mechanism.single_example == (micro_batches == 32)


@pytest.mark.parametrize("pieces", [None, 2])
@pytest.mark.slow
def test_workers_whose_shares_differ_by_one_micro_batch_agree_with_the_literal_algorithm(pieces: int | None) -> None:
    spec, shape = EDPSpec(C=0.1, z0=0.5, reproducible_noise=7), SHAPE | {"micro_batches": 5, "batch_size": 20}
    expected = literal_training(spec, **shape)
    for world in (2, 3) if pieces is None else (2,):
        for weights, ledger in run_workers(hook_training, world, spec, *shape.values(), pieces):
            torch.testing.assert_close(weights, expected, rtol=0, atol=2e-6)
            assert {entry.mechanism.N for entry in ledger.entries} == {5}


@pytest.mark.slow
def test_every_worker_needs_a_micro_batch() -> None:
    (words, _) = run_workers(_too_few, 2)
    assert "micro_batches = 1 is less than one for each of the 2 workers" in words


def _too_few(rank: int, world: int) -> str:
    try:
        EDPHook(one_bucket_ddp(small_model()), EDPSpec(), micro_batches=1, single_example=False, rate=1.0)
    except ValueError as error:
        return str(error)
    return "went on"


@pytest.mark.slow
def test_secret_noise_leaves_every_worker_with_the_same_weights_and_differs_between_runs() -> None:
    spec = EDPSpec(C=0.1, z0=0.5)
    first, second = (run_workers(hook_training, 2, spec, *SHAPE.values()) for _ in range(2))
    assert torch.equal(first[0][0], first[1][0])
    assert not torch.equal(first[0][0], second[0][0])


@pytest.mark.slow
def test_dpsgd_agrees_with_the_literal_algorithm_also_where_workers_have_no_example() -> None:
    spec, expected, steps = EDPSpec(C=0.3, z0=0.0, sampling="poisson"), 4, 6
    counts = [len(mine) for step in range(steps) for mine in drawn_examples(step, 4)]
    assert {0, 1} < set(counts), "some workers have none, some one, some several"
    weights = literal_dpsgd(spec, expected=expected, steps=steps)
    for world, pieces in ((1, None), (2, None), (4, None), (1, 1), (1, 3), (2, 2), (4, 1)):
        for found, ledger in run_workers(hook_dpsgd, world, spec, expected, steps, pieces):
            torch.testing.assert_close(found, weights, rtol=0, atol=2e-6)
            (entry,) = ledger.entries
            assert entry.steps == steps
            assert entry.mechanism.single_example
            assert entry.mechanism.sampling == "poisson"
            assert (entry.mechanism.N, entry.mechanism.rate) == (expected, expected / DPSGD_POOL)


def _draw(rank: int, world: int, resumed_at: int) -> torch.Tensor:
    ddp = one_bucket_ddp(_NoGradient())
    ledger = Ledger()
    for _ in range(resumed_at):
        ledger = ledger.record(ledger.steps, Mechanism(C=1.0, z=1.0, N=2))
    open_step(EDPHook(ddp, EDPSpec(), micro_batches=2, single_example=False, rate=1.0, ledger=ledger), resumed_at)
    ddp(torch.ones(1)).backward()
    return ddp.module.weight.grad.clone()


@pytest.mark.slow
def test_a_resumed_run_draws_fresh_noise_also_for_a_step_that_it_repeats() -> None:
    draws = [run_workers(_draw, 2, resumed_at)[0].numpy() for resumed_at in (0, 0, 3, 3)]
    correlation = np.corrcoef(np.stack(draws))
    assert np.abs(correlation - np.eye(len(draws))).max() < 5 / math.sqrt(len(draws[0]))


def _stray_micro_batch(rank: int, world: int, sampling: str) -> str:
    ddp = one_bucket_ddp(small_model())
    hook = EDPHook(ddp, EDPSpec(sampling=sampling), micro_batches=1, single_example=sampling == "shuffle", rate=1.0)
    open_step(hook)
    try:
        with ddp.no_sync():
            ddp(torch.ones(1, 6)).sum().backward()
        hook.accumulate()
    except RuntimeError as error:
        return str(error)
    return "went on"


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
@pytest.mark.slow
def test_only_dpsgd_under_poisson_sampling_may_take_more_micro_batches_than_n(sampling: str) -> None:
    assert "more than 1 micro-batches" in run_workers(_stray_micro_batch, 1, sampling)[0]


class _NoGradient(nn.Module):
    """A model of many parameters whose gradient is zero, so that the aggregate is pure noise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(200_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * 0.0).sum() + 0.0 * x.sum()


def _pure_noise(rank: int, world: int, spec: EDPSpec, micro_batches: int) -> tuple[torch.Tensor, float]:
    ddp = one_bucket_ddp(_NoGradient())
    hook = EDPHook(ddp, spec, micro_batches=micro_batches, single_example=False, rate=1.0)
    open_step(hook)
    for _ in range(hook.per_worker - 1):
        with ddp.no_sync():
            ddp(torch.ones(1)).backward()
        hook.accumulate()
    ddp(torch.ones(1)).backward()
    return ddp.module.weight.grad.clone(), hook.mechanism.noise_std()


@pytest.mark.parametrize("noise", ["corrected", "paper"])
@pytest.mark.parametrize(("workers", "micro_batches"), [(1, 1), (2, 2), (1, 4), (2, 8), (4, 4), (2, 5)])
@pytest.mark.slow
def test_the_noise_of_the_aggregate_has_the_std_of_the_theory(noise: str, workers: int, micro_batches: int) -> None:
    C, z = 0.7, 1.3
    results = run_workers(_pure_noise, workers, EDPSpec(C=C, z0=z, noise=noise), micro_batches)
    expected = C * z / micro_batches if noise == "corrected" else C * z / micro_batches**1.5
    aggregate, stated = results[0]
    assert stated == pytest.approx(expected)
    # The sample std of n Gaussians is within 5 standard errors σ/√(2n) of σ.
    assert float(aggregate.std()) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(aggregate)))
    assert abs(float(aggregate.mean())) < 5 * expected / math.sqrt(len(aggregate))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("more", "size", "pieces"),
    [
        ({}, 4, None),
        ({}, 4, 1),
        ({}, 1, None),
        ({}, 1, 2),
        ({"clip": "automatic"}, 4, 1),
        ({"clip": "quantile", "C": 0.3}, 4, 2),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.slow
def test_a_micro_batch_whose_gradient_is_not_finite_adds_nothing_and_the_step_goes_on(
    more: dict, size: int, pieces: int | None, bad: float
) -> None:
    spec = EDPSpec(**{"C": 0.1, "z0": 0.5, "reproducible_noise": 7} | more)
    shape = {"micro_batches": 8, "batch_size": 8 * size, "epochs": 1, "steps": 4}
    expected = literal_training(spec, **shape, bad=bad)
    assert not torch.allclose(expected, literal_training(spec, **shape), atol=1e-4), "it matters"
    for world in (1, 2):
        for weights, _ in run_workers(hook_training, world, spec, *shape.values(), pieces, bad):
            torch.testing.assert_close(weights, expected, rtol=0, atol=3e-6)


def _bad_with_banded_noise(rank: int, world: int) -> bool:
    ddp = one_bucket_ddp(small_model())
    spec = EDPSpec(C=0.1, z0=0.5, noise_correlation="banded", band=2)
    hook = EDPHook(ddp, spec, micro_batches=1, single_example=False, rate=0.5)
    open_step(hook)
    ddp(torch.full((1, 6), math.nan)).square().sum().backward()
    return all(bool(p.grad.isfinite().all() and p.grad.any()) for p in ddp.parameters())


@pytest.mark.slow
def test_where_noise_is_correlated_it_is_all_that_is_left_of_a_gradient_that_is_not_finite() -> None:
    assert run_workers(_bad_with_banded_noise, 1) == [True]


def _bad_rule(rank: int, world: int) -> str:
    """A rule for a layer that forgets what is not finite."""
    ddp = one_bucket_ddp(small_model())
    hook = EDPHook(ddp, EDPSpec(C=0.1, z0=0.5), micro_batches=world, single_example=False, rate=1.0)
    hook.clip.factors = lambda norms_g: torch.full_like(norms_g, math.nan if rank == 1 else 1.0)
    open_step(hook)
    ddp(torch.ones(1, 6)).square().sum().backward()
    try:
        hook.check()
    except NonFiniteGradient as error:
        return str(error)
    return "went on"


@pytest.mark.slow
def test_an_aggregate_that_is_not_finite_stops_every_worker() -> None:
    for message in run_workers(_bad_rule, 2):
        assert "NaN or infinite in epoch 0, step 0" in message


def _several_buckets(rank: int, world: int) -> str:
    ddp = nn.parallel.DistributedDataParallel(small_model(), bucket_cap_mb=0.0001)
    hook = EDPHook(ddp, EDPSpec(), micro_batches=1, single_example=False, rate=1.0)
    try:
        for epoch in range(2):  # DDP settles on its buckets in the second step
            open_step(hook, epoch)
            ddp.zero_grad()
            ddp(torch.ones(1, 6)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "went on"


@pytest.mark.slow
def test_several_buckets_are_refused_since_each_would_be_clipped_alone() -> None:
    assert "several buckets" in run_workers(_several_buckets, 1)[0]


def _zero_gradient_and_frozen(rank: int, world: int) -> tuple[bool, bool]:
    model = small_model()
    model[0].weight.requires_grad_(False)
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, EDPSpec(C=0.1, z0=0.5), micro_batches=1, single_example=False, rate=1.0)
    open_step(hook)
    (0.0 * ddp(torch.ones(1, 6)).sum()).backward()
    hook.check()
    return model[0].weight.grad is None, all(
        bool(p.grad.abs().sum() > 0) for p in model.parameters() if p.requires_grad
    )


@pytest.mark.slow
def test_a_zero_gradient_gets_noise_and_a_frozen_parameter_gets_none() -> None:
    assert run_workers(_zero_gradient_and_frozen, 1) == [(True, True)]
