"""Layer scales from public gradients and from private votes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from edp.accounting.epsilon import epsilon
from edp.alpha import gradient_layer_norms, layer_norms, public_alpha, votes
from edp.ledger import PRIVATE_ALPHA_Z, planned_ledger
from edp.spec import EDPSpec
from tests.support.edp.alpha_workers import batch_loss, estimate, run_once, without_scales
from tests.support.edp.literal import small_model
from tests.support.workers import run_workers


def test_layer_norms_are_those_of_the_gradient_and_leave_no_gradient_behind() -> None:
    model = small_model()
    model[2].weight.requires_grad_(False)
    norms = gradient_layer_norms(model, batch_loss(model))
    assert all(p.grad is None for p in model.parameters())
    batch_loss(model).backward()
    expected = [
        torch.cat([p.grad.flatten() for p in layer.parameters() if p.grad is not None]).norm()
        for layer in (model[0], model[2], model[4])
    ]
    torch.testing.assert_close(norms, torch.stack(expected))


def test_public_scales_are_in_proportion_to_the_norms_with_a_largest_one_of_1() -> None:
    assert public_alpha(torch.tensor([2.0, 4.0, 1.0])).tolist() == [0.5, 1.0, 0.25]
    assert public_alpha(torch.tensor([0.0, 4.0])).tolist() == [pytest.approx(1e-3), 1.0]
    assert public_alpha(torch.zeros(2)).tolist() == [1.0, 1.0]


def test_a_vote_is_the_direction_and_an_example_without_one_does_not_vote() -> None:
    nan, inf = float("nan"), float("inf")
    rows = [[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0], [nan, 1.0], [inf, 1.0]]
    expected = [[0.6, 0.8]] * 3 + [[0.0, 0.0]] * 3
    torch.testing.assert_close(votes(torch.tensor(rows)).float(), torch.tensor(expected))
    assert votes(torch.zeros(0, 2)).shape == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_estimate_is_the_same_on_all_workers_and_for_every_number_of_them(world: int) -> None:
    # Three votes on four workers: one has none.
    expected = run_workers(estimate, 1, 3, 0.1, 7)[0]
    for scales in run_workers(estimate, world, 3, 0.1, 7):
        torch.testing.assert_close(scales, expected, rtol=0, atol=1e-6)
    secret = run_workers(estimate, world, 3, 0.1, None)
    assert all(torch.equal(scales, secret[0]) for scales in secret)
    assert not torch.equal(secret[0], run_workers(estimate, world, 3, 0.1, None)[0])


@pytest.mark.slow
def test_many_votes_find_the_ratios_and_what_noise_hides_is_raised_to_its_level() -> None:
    scales = run_workers(estimate, 1, 100_000, 10.0, None)[0]
    assert scales.tolist() == pytest.approx([0.5, 1.0, 0.005, 0.25], abs=0.002)
    few = run_workers(estimate, 1, 500, 10.0, None)[0]
    # A sum of 2.2 against a noise of 10: not told from nothing, so at the noise's level or a few times that.
    assert 10 / 600 < float(few[2]) < 0.15
    assert few.max() == 1


@pytest.mark.slow
def test_hardly_any_votes_leave_scales_that_hide_no_layer() -> None:
    for scales in run_workers(estimate, 2, 1, 10.0, None):
        assert scales.max() == 1
        assert scales.min() > 0.1


@pytest.mark.slow
def test_a_run_with_private_scales_costs_what_was_planned() -> None:
    plan = planned_ledger(
        EDPSpec(alpha="private"), epochs=1, micro_batches=2, steps_per_epoch=1, rate=1.0, single_example=False
    )
    assert run_workers(run_once, 2) == [plan] * 2
    assert plan.alpha_release is not None
    assert plan.alpha_release.z == PRIVATE_ALPHA_Z
    assert epsilon(plan, 1e-5) > epsilon(plan.model_copy(update={"alpha_release": None, "entries": ()}), 1e-5)


@pytest.mark.parametrize("alpha", ["public", "private"])
@pytest.mark.slow
def test_the_hook_asks_for_scales_that_it_cannot_find_itself(alpha: str) -> None:
    assert "estimated beforehand" in run_workers(without_scales, 1, alpha)[0]


@pytest.mark.parametrize("fill", [torch.ones, torch.rand, torch.randn])
@pytest.mark.parametrize("size", [1, 1023, 1025, 5_000_000])
def test_a_large_tensors_norm_is_not_too_small(fill: Callable[[int], torch.Tensor], size: int) -> None:
    gradient = fill(size) * 0.7
    (found,) = layer_norms([gradient], torch.tensor([0]), 1)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(gradient.double().norm()), rel=2e-6)
