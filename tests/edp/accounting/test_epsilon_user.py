"""ε for users: that of a run whose unit they are, and the group privacy of what one user contributed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event, pld
from scipy.stats import binom, norm

from edp.accounting.composition import Composition, compose, sampled, unsampled
from edp.accounting.epsilon import epsilon, epsilon_of, epsilon_user
from edp.accounting.gaussian import gaussian_epsilon
from edp.accounting.pld import pld_epsilon_at
from edp.accounting.selection import composed_epsilon, composed_epsilon_user
from edp.ledger import AlphaRelease, Ledger, planned_ledger
from edp.spec import EDPSpec

DELTA = 1e-5
RUN: dict[str, Any] = {"epochs": 5, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1}


def ledger_of(most: int | None = None, *, single: bool = False, **settings: Any) -> Ledger:
    planned = planned_ledger(EDPSpec(z0=2.0, **settings), single_example=single, **RUN)
    return planned.model_copy(update={"most_of_a_user": most})


def test_of_users_it_is_the_accountants_own_for_a_clip_of_c_at_their_rate() -> None:
    shuffled = ledger_of(unit="user")
    assert epsilon_user(shuffled, DELTA) == epsilon(shuffled, DELTA) == gaussian_epsilon(math.sqrt(5) / 2, DELTA)
    poisson = ledger_of(unit="user", sampling="poisson")
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0))
    accountant.compose(dp_event.SelfComposedDpEvent(event, 50))
    assert epsilon_user(poisson, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert epsilon_user(poisson, DELTA) == epsilon(poisson, DELTA)


def test_how_much_one_user_has_changes_nothing_where_users_are_the_unit() -> None:
    assert epsilon_user(ledger_of(100, unit="user"), DELTA) == epsilon(ledger_of(unit="user"), DELTA)


def test_without_users_nothing_is_said() -> None:
    assert epsilon_user(ledger_of(), DELTA) is None
    assert epsilon_user(ledger_of(unit="micro_batch"), DELTA) is None
    assert epsilon_user(Ledger(private=False), DELTA) is None
    assert epsilon_user(Ledger(private=False, most_of_a_user=1), DELTA) == math.inf


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("k", [1, 2, 7, 50])
def test_k_examples_in_shuffled_epochs_are_k_times_as_far_apart(k: int, single: bool) -> None:
    kappa = 1 if single else 2
    mu = k * kappa * math.sqrt(5) / 2
    assert epsilon_user(ledger_of(k, single=single), DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-12)
    # Emptied and filled again.
    of_micro_batches = epsilon_user(ledger_of(k, unit="micro_batch", single=single), DELTA)
    assert of_micro_batches == pytest.approx(gaussian_epsilon(k * math.sqrt(5), DELTA), rel=1e-12)


def test_the_release_of_the_layer_scales_and_what_was_lost_count_k_times_too() -> None:
    ledger = ledger_of(3, single=True, alpha="private")
    assert ledger.alpha_release is not None
    lost = ledger_of(single=True)
    ledger = ledger.model_copy(update={"discarded": (lost,)})
    mu = 3 * math.sqrt(10 / 4 + 1 / ledger.alpha_release.z**2)
    assert epsilon_user(ledger, DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-12)


def test_a_release_alone_is_taken_for_that_of_micro_batches() -> None:
    ledger = Ledger(alpha_release=AlphaRelease(z=10.0), most_of_a_user=4)
    assert epsilon_user(ledger, DELTA) == pytest.approx(gaussian_epsilon(0.8, DELTA), rel=1e-12)


def true_delta(epsilon: float, k: int, rate: float, z: float) -> float:
    """δ of one Poisson step for k examples that all pull the same way, the larger of both directions, by integrating
    over a fine grid: the outputs are Σ_j Bin(k, rate)(j) N(j, z²) and N(0, z²)."""
    x = np.linspace(-12 * z, k + 12 * z, 400_001)
    with_them = sum(binom.pmf(j, k, rate) * norm.pdf(x, j, z) for j in range(k + 1))
    without = norm.pdf(x, 0, z)
    return max(
        float(np.trapezoid(np.maximum(a - math.exp(epsilon) * b, 0), x))
        for a, b in ((with_them, without), (without, with_them))
    )


@pytest.mark.parametrize("z", [0.8, 3.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("k", [1, 2, 5, 20])
@pytest.mark.slow
def test_a_poisson_step_costs_what_k_examples_really_cost(k: int, rate: float, z: float) -> None:
    bound = epsilon_of(sampled(rate, z, 1).of_group(k), DELTA)
    assert true_delta(bound, k, rate, z) <= DELTA * (1 + 1e-6)
    assert true_delta(bound * 0.99, k, rate, z) > DELTA
    if k == 1:
        assert bound == epsilon_of(sampled(rate, z, 1), DELTA)
    loose = epsilon_of(sampled(rate, z, 1).of_group(k).of_single_units(), DELTA)
    assert bound <= loose * (1 + 2e-3)
    assert loose <= epsilon_of(unsampled(z).of_group(k), DELTA) * (1 + 1e-9)


@pytest.mark.parametrize(("k", "rate", "z", "steps"), [(8, 0.01, 1.0, 1000), (5, 0.3, 3.0, 100), (50, 0.02, 4.0, 1000)])
@pytest.mark.slow
def test_a_group_in_many_poisson_steps_agrees_with_the_library_at_the_same_interval(
    k: int, rate: float, z: float, steps: int
) -> None:
    mixture = pld.privacy_loss_distribution.from_mixture_gaussian_mechanism(
        z, np.arange(k + 1.0), binom.pmf(np.arange(k + 1), k, rate), value_discretization_interval=1e-2
    )
    group = sampled(rate, z, steps).of_group(k)
    expected = mixture.self_compose(steps).get_epsilon_for_delta(DELTA)
    assert pld_epsilon_at(group, DELTA, 1e-2) == pytest.approx(expected, rel=1e-6)
    assert expected * 0.99 < epsilon_of(group, DELTA) < expected * 1.002


def test_a_group_costs_far_less_than_if_it_were_drawn_together() -> None:
    group = sampled(0.01, 1.0, 1000).of_group(8)
    assert epsilon_of(group, DELTA) == pytest.approx(20.9, abs=0.1)
    assert epsilon_of(group.of_single_units(), DELTA) > 3000


def test_a_group_of_groups_is_one_group_and_composes_only_with_its_like() -> None:
    one = sampled(0.1, 2.0, 5)
    assert one.of_group(2).of_group(3) == one.of_group(6)
    assert [s.units for s in compose([one, one.of_group(2), one.of_group(2)]).sampled] == [1, 2]
    assert compose([one.of_group(2), one.of_group(2)]) == sampled(0.1, 2.0, 10).of_group(2)


def test_a_group_that_is_in_nearly_every_sample_costs_no_more_than_without_sampling() -> None:
    """1 - (1 - rate)^k rounds to 1, and other bounds are loose by orders of magnitude."""
    group = sampled(0.05, 20.0, 500).of_group(1000)
    mean = 50 * math.sqrt(500) / 20
    assert gaussian_epsilon(mean, DELTA) < epsilon_of(group, DELTA) < 1.1 * gaussian_epsilon(mean, DELTA)


def test_a_group_of_one_is_the_unit_and_larger_ones_cost_more() -> None:
    c = Composition(0.3, sampled(0.1, 2.0, 50).sampled)
    assert epsilon_of(c.of_group(1), DELTA) == pytest.approx(epsilon_of(c, DELTA), rel=1e-6)
    costs = [epsilon_of(c.of_group(k), DELTA) for k in (1, 2, 3, 10, 1000)]
    assert costs == sorted(costs)
    assert math.isfinite(costs[-1])


def test_a_sweep_composes_what_its_trials_cost_a_user() -> None:
    ours, theirs = ledger_of(unit="user"), ledger_of(3, single=True)
    mu = math.hypot(math.sqrt(5) / 2, 3 * math.sqrt(5) / 2)
    assert composed_epsilon_user([ours, theirs], DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-12)
    assert composed_epsilon_user([ours, ours], DELTA) == composed_epsilon([ours, ours], DELTA)
    assert composed_epsilon_user([ours, ledger_of()], DELTA) is None
    assert composed_epsilon_user([ours, Ledger()], DELTA) == epsilon(ours, DELTA)


def test_a_ledger_of_users_survives_json_and_old_files_read_as_of_unknown_users() -> None:
    ledger = ledger_of(7)
    assert Ledger.model_validate_json(ledger.model_dump_json()) == ledger
    assert Ledger.model_validate({"private": True}).most_of_a_user is None
