"""Whoever drives the hook wrongly gets an error, or an ε that is too large: never one that is too small."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from edp.accounting.epsilon import epsilon
from edp.steps import HookUsageError, _Evidence
from tests.support.edp.misuse_workers import misused, resumed_in_mid_epoch, went_well, with_a_scaler
from tests.support.workers import run_workers

POISSON = {"sampling": "poisson"}
BANDED = {"noise_correlation": "banded", "band": 2}
ALONE = {"a_gate_that_opens_later": {}, "accumulate_left_out": POISSON, "a_poisson_epoch_of_shuffled_batches": POISSON}
"""Which settings of a misuse are run by one worker alone."""


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
        ("no_zero_grad", {}, "a step began with the gradient of the last one", 1),
        ("all_examples_in_micro_batch_0", {}, "the micro-batches of a step hold ", 0),
        ("a_poisson_epoch_of_the_same_steps", POISSON, "the steps are not Poisson drawn", 3),
        ("a_poisson_epoch_of_shuffled_batches", POISSON, "the steps are not Poisson drawn", None),
        ("a_mean_over_the_batchs_tokens", {}, "one number that is not the sum of a term for each", 0),
        ("a_mean_over_the_batchs_tokens_with_dropout", {}, "one number that is not the sum of a term for each", 0),
        ("a_division_by_len_with_dropout", {}, "depends on the other examples", 0),
        ("dropout_by_a_public_seed", POISSON, "a Poisson step drew random numbers from the seed 0", 0),
        ("a_gate_that_opens_later", {}, "depends on the other examples", None),
        ("a_gate_that_an_update_opens", {}, "depends on the other examples", 3),
        ("a_frozen_parameter_that_follows_the_data", {}, "frozen parameter between.codes: it changed", 4),
        ("a_buffer_that_follows_the_data_later", {}, "buffer between.codes: it changed", 4),
        ("a_trained_parameter_that_is_set_from_the_data", {}, "a weight changed within a step", 0),
        ("a_parameter_of_the_loss_in_the_optimizer", {}, "that is none of the model's", 1),
        ("an_optimizer_step_inside_backward", {}, "a weight changed within a step", 0),
    ],
)
@pytest.mark.slow
def test_misuse_is_refused(name: str, settings: dict, words: str, steps: int | None) -> None:
    # A worker that finds a mistake alone leaves the others waiting for it.
    for world in (1,) if ALONE.get(name) == settings else (1, 2):
        for said, taken in run_workers(misused, world, name, settings):
            assert words in said
            assert steps is None or taken == steps


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("another_draw_on_each_worker", POISSON, "the workers' steps differ"),
        ("another_order_on_each_worker", {}, "the workers' steps differ"),
        ("the_share_of_another_worker", {}, "; allowed: step[rank], its own share"),
    ],
)
@pytest.mark.slow
def test_workers_that_do_not_share_a_step_are_refused(name: str, settings: dict, words: str) -> None:
    for said, taken in run_workers(misused, 2, name, settings):
        assert words in said
        assert taken == 0


@pytest.mark.parametrize(
    ("name", "settings", "world"),
    [
        ("the_share_of_another_worker_by_iteration", {}, 2),
        ("a_parameter_of_the_loss_in_its_own_optimizer", {}, 1),
        ("a_backward_pass_that_normalises_by_the_batch", {}, 1),
    ],
)
@pytest.mark.slow
def test_what_the_pitfalls_list_as_not_found_is_not_found(name: str, settings: dict, world: int) -> None:
    assert run_workers(misused, world, name, settings) == [("went on", 4)] * world


@pytest.mark.parametrize(
    ("name", "settings"),
    [("no_zero_grad_in_a_recorded_loop", {}), ("a_sum_with_dropout", {}), ("dropout_by_a_secret_seed", POISSON)],
)
@pytest.mark.slow
def test_what_resembles_a_mistake_goes_on(name: str, settings: dict) -> None:
    for world in (1, 2):
        assert run_workers(misused, world, name, settings) == [("went on", 4)] * world


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


@pytest.mark.parametrize(("units", "rate"), [(16, 0.25), (4_000, 0.064), (50, 1.0), (200, 0.001)])
def test_the_evidence_against_poisson_draws_is_worth_1_on_average_and_grows_without_bound_for_others(
    units: int, rate: float
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        evidence = _Evidence()
        for _ in range(200):
            evidence.add(np.flatnonzero(rng.random(units) < rate), units, rate)
        assert evidence._wealth < 1e4
    if units * rate < 1 or rate == 1:
        return
    same, evidence = np.flatnonzero(rng.random(units) < rate), _Evidence()
    with pytest.raises(HookUsageError, match="not Poisson drawn"):
        all(evidence.add(same, units, rate) is None for _ in itertools.count())
    assert evidence._steps == (2 if units > 1_000 else 5)


def test_a_bet_against_poisson_draws_wins_1_on_average_over_all_draws() -> None:
    units, rate = 4, 0.3
    draws = [np.flatnonzero(list(bits)) for bits in itertools.product([0, 1], repeat=units)]
    for last in draws:
        won = 0.0
        for drawn in draws:
            evidence = _Evidence()
            evidence.add(last, units, rate)
            before = evidence._wealth + 1 / 6
            evidence.add(drawn, units, rate)
            won += rate ** len(drawn) * (1 - rate) ** (units - len(drawn)) * evidence._wealth / before
        assert won == pytest.approx(1)
