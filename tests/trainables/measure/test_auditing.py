"""What the audit makes of losses and coins, and when it contradicts a ledger."""

import math

import numpy as np
import pytest

from edp.accounting.audit import audited_epsilon, audited_epsilon_f_dp
from edp.accounting.composition import Composition, composition_of
from edp.accounting.epsilon import epsilon
from edp.accounting.tradeoff import gaussian_mu
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec
from trainables.measure.attacks.auditing import GUESSES, audit, audit_of, canary_scores, contradiction
from trainables.measure.attacks.canary import SIBLINGS
from trainables.measure.measuring import permitted_metrics

GAUSSIAN = Composition(mu=1.0)


def ledger(z0=1.0, **spec):
    plan = {"epochs": 4, "micro_batches": 8, "steps_per_epoch": 2, "rate": 0.5, "single_example": False}
    return planned_ledger(EDPSpec(z0=z0, **spec), **plan)


def test_a_score_is_how_many_times_less_than_its_siblings_a_canary_costs():
    own, others = np.array([1.0, 0.1]), np.array([[1.0] * SIBLINGS, [10.0] * SIBLINGS])
    scores = canary_scores(np.concatenate([own, others.ravel()]))
    assert scores == pytest.approx([0.0, np.log(100)])


def test_the_audit_takes_the_best_of_its_guesses_at_a_confidence_that_makes_all_hold():
    coins = np.arange(1000) % 2 == 0
    scores = np.where(coins, 1.0, 0.0) + np.linspace(0, 0.1, 1000)
    found = audit(scores, coins, 1e-5, GAUSSIAN)
    counts = [round(1000 * a) + round(1000 * b) for a, b in GUESSES]
    each = 1 - 0.025 / len(GUESSES)
    assert found.of_any_mechanism == max(audited_epsilon(1000, r, r, 1e-5, each) for r in counts)
    assert found.of_own_noise == audited_epsilon_f_dp(GAUSSIAN, 1000, [(r, r) for r in counts], 1e-5, 0.975)
    assert found.right == found.guesses
    metrics = found.metrics()
    assert metrics["epsilon_audited"] == max(found.of_any_mechanism, found.of_own_noise) == found.epsilon
    assert (metrics["epsilon_audited_any_mechanism"], metrics["epsilon_audited_own_noise"]) == (
        found.of_any_mechanism,
        found.of_own_noise,
    )
    assert audit(-scores, coins, 1e-5, GAUSSIAN).epsilon == 0


def test_guesses_that_can_show_nothing_cost_no_confidence():
    """At δ = 5e-4, each at its share of 97.5 %, a hundred right ones rule nothing out whatever the mechanism."""
    coins, counts = np.arange(1000) % 2 == 0, [round(1000 * a) + round(1000 * b) for a, b in GUESSES]
    found = audit(np.where(coins, 1.0, 0.0), coins, 5e-4, GAUSSIAN)
    each = 1 - 0.025 / len(GUESSES)
    useful = [r for r in counts if audited_epsilon(1000, r, r, 5e-4, each) > 0]
    assert 0 < len(useful) < len(counts)
    share = 1 - 0.025 / len(useful)
    assert found.of_any_mechanism == max(audited_epsilon(1000, r, r, 5e-4, share) for r in useful)
    assert audit(np.zeros(4), np.ones(4, bool), 0.4, GAUSSIAN).epsilon == 0


@pytest.mark.slow
def test_scores_that_know_nothing_rule_out_nothing_in_19_of_20_runs():
    rng = np.random.default_rng(0)
    bounds = [audit(rng.normal(size=200), rng.random(200) < 0.5, 1e-5, GAUSSIAN).epsilon for _ in range(100)]
    assert np.mean(np.array(bounds) > 0) <= 0.11  # P[Bin(100, 0.05) > 11] = 0.4 %


@pytest.mark.slow
def test_the_bound_stays_below_the_truth_of_a_gaussian_mechanism():
    """μ = 1: ε is 4.38 at δ = 1e-5. The canaries' scores are its outputs."""
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(60):
        coins = rng.random(400) < 0.5
        bounds.append(audit(rng.normal(coins * 1.0, 1.0), coins, 1e-5, GAUSSIAN).epsilon)
    assert max(bounds) < 4.377
    assert np.median(bounds) > 0.1


def losses_of(coins: np.ndarray, gap: float) -> np.ndarray:
    """Canaries that were trained on cost `gap` less, siblings what the others do."""
    rng = np.random.default_rng(2)
    own = rng.uniform(1.0, 1.2, len(coins)) * np.where(coins, math.exp(-gap), 1.0)
    return np.concatenate([own, rng.uniform(1.0, 1.2, len(coins) * SIBLINGS)])


def test_a_run_is_audited_against_its_own_ledger_and_contradicts_it_only_from_above():
    coins = np.random.default_rng(1).random(1000) < 0.5
    for z0, contradicts in ((0.5, False), (20.0, True)):
        own = ledger(z0)
        found = audit_of(losses_of(coins, 1.0), coins, own, 5e-4)
        assert found.of_own_noise > 4
        assert (found.epsilon > epsilon(own, 5e-4)) == contradicts
        words = contradiction(found.epsilon, own, 5e-4)
        assert (words is not None) == contradicts
        assert words is None or f"guarantees {epsilon(own, 5e-4):.4g}" in words
    assert audit_of(losses_of(coins, 0.0), coins, ledger(20.0), 5e-4).epsilon == 0


@pytest.mark.parametrize("own", [Ledger(private=False), ledger(reproducible_noise=1), ledger(z0=0.0)])
def test_what_guarantees_nothing_is_audited_as_a_gaussian_mechanism_and_never_contradicted(own):
    coins = np.random.default_rng(1).random(1000) < 0.5
    found = audit_of(losses_of(coins, 1.0), coins, own, 5e-4)
    assert found == audit_of(losses_of(coins, 1.0), coins, ledger(1.0), 5e-4)
    assert contradiction(found.epsilon, own, 5e-4) is None


def test_a_canary_is_one_example_whatever_the_unit_of_the_ledger():
    """With micro-batches as the unit, ε is that of one alone: an example can turn one round, and is free to show it."""
    of_micro_batch, of_example = ledger(2.0, unit="micro_batch"), ledger(2.0)
    assert epsilon(of_micro_batch, 5e-4) < epsilon(of_example, 5e-4)
    between = (epsilon(of_micro_batch, 5e-4) + epsilon(of_example, 5e-4)) / 2
    assert contradiction(between, of_micro_batch, 5e-4) is None
    assert contradiction(1.01 * epsilon(of_example, 5e-4), of_micro_batch, 5e-4) is not None


def test_what_is_permitted_is_of_one_example_whatever_the_unit_of_the_ledger():
    of_micro_batch, of_example = ledger(2.0, unit="micro_batch"), ledger(2.0)
    assert permitted_metrics(of_micro_batch, 5e-4) == permitted_metrics(of_example, 5e-4)
    by_user = ledger(2.0, unit="user")
    assert permitted_metrics(by_user, 5e-4)["gaussian_mu"] == gaussian_mu(by_user, 5e-4)


def test_the_family_of_a_poisson_ledger_is_its_own():
    coins = np.random.default_rng(1).random(1000) < 0.5
    own = ledger(2.0, sampling="poisson")
    found = audit_of(losses_of(coins, 1.0), coins, own, 5e-4)
    guesses = []
    order = np.argsort(-canary_scores(losses_of(coins, 1.0)), kind="stable")
    for a, b in GUESSES:
        inside, outside = order[: round(1000 * a)], order[1000 - round(1000 * b) :]
        guesses.append((len(inside) + len(outside), int(coins[inside].sum() + (~coins[outside]).sum())))
    assert found.of_own_noise == audited_epsilon_f_dp(composition_of(own), 1000, guesses, 5e-4, 0.975)
