"""Whoever drives the hook wrongly gets an error, or an ε that is too large: never one that is too small."""

from __future__ import annotations

import math

import pytest

from edp.accounting.epsilon import epsilon
from tests.support.edp.misuse_workers import misused, resumed_in_mid_epoch, went_well, with_a_scaler
from tests.support.workers import run_workers

POISSON = {"sampling": "poisson"}
BANDED = {"noise_correlation": "banded", "band": 2}


@pytest.mark.parametrize(
    ("name", "settings", "words", "steps"),
    [
        ("nobody_says_which_epoch", {}, "a gradient without a step", 0),
        ("the_same_epoch_again", {}, "epoch 0 was begun before", 4),
        ("an_epoch_that_never_ends", {}, "a shuffled epoch of more than 4 steps at rate = 0.25", 4),
        ("empty_steps_without_end", {}, "a shuffled epoch of more than 4 steps", 4),
        ("a_sampler_that_draws_with_replacement", {}, "holds an example twice", None),
        ("a_sampler_of_another_kind", {}, "sampling is poisson; allowed here: shuffle", 0),
        ("a_sampler_of_another_rate", {}, "rate is 8/16; allowed here: 0.25", 0),
        ("micro_batches_of_several_examples", POISSON, "a micro-batch of 2 examples", 0),
        ("dealt_to_other_workers", {}, "micro-batches to this one of", 0),
        ("another_order_under_correlated_noise", BANDED, "in another step than in the first epoch", 4),
        ("a_parameter_added_after_the_hook", {}, "5.weight would be neither clipped nor noised", 0),
        ("a_parameter_added_between_steps", {}, "5.weight would be neither clipped nor noised", 1),
        ("a_parameter_replaced", {}, "0.weight would be neither clipped nor noised", 0),
        ("a_step_left_out", {}, "a step was left out", 1),
        ("a_step_left_out", POISSON, "a step was left out", 1),
        ("the_last_step_left_out", {}, "a step was left out", 3),
        ("the_model_without_ddp", {}, "a step was left out", 0),
        ("accumulate_left_out", {}, "1 micro-batches in a step instead of", 0),
        ("accumulate_left_out", POISSON, "1 micro-batches in a step instead of", None),
        ("two_backward_passes_in_a_step", {}, "a gradient without a step", 1),
        ("gradients_of_two_steps_in_one", {}, "a step was left out", 0),
        ("two_epochs_at_once", {}, "a step was left out", 0),
    ],
)
@pytest.mark.slow
def test_misuse_is_refused(name: str, settings: dict, words: str, steps: int | None) -> None:
    # One worker's mistake under Poisson sampling leaves the others waiting for it.
    for world in (1,) if name == "accumulate_left_out" and settings == POISSON else (1, 2):
        for said, taken in run_workers(misused, world, name, settings):
            assert words in said
            assert steps is None or taken == steps


@pytest.mark.slow
def test_the_same_loop_without_the_mistake_goes_on_and_counts_every_epoch() -> None:
    for world in (1, 2):
        (ledger, *_) = run_workers(went_well, world, 30, {"z0": 1.0})
        assert epsilon(ledger, 5e-4) == pytest.approx(32.242817, abs=5e-7)
        assert [entry.steps for entry in ledger.entries] == [4] * 30
    (ledger, *_) = run_workers(went_well, 2, 3, POISSON)
    assert [entry.steps for entry in ledger.entries] == [4] * 3


@pytest.mark.slow
def test_an_epoch_that_was_begun_before_a_crash_is_not_taken_again_under_its_number() -> None:
    (words,) = run_workers(resumed_in_mid_epoch, 1)
    assert "epoch 1 was begun before" in words


@pytest.mark.parametrize("scale", [2.0**16, 2.0**-10])
@pytest.mark.slow
def test_a_scaler_of_mixed_precision_leaves_noise_over_clip_and_the_count_of_steps_as_they_are(scale: float) -> None:
    for measured, stated, steps in run_workers(with_a_scaler, 2, scale):
        # About 270 coordinates: five standard errors of their standard deviation.
        assert measured == pytest.approx(stated, rel=5 / math.sqrt(2 * 270))
        assert steps == 2
