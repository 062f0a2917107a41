"""What the audit of SGD makes of losses and coins."""

import numpy as np
import pytest

from edp.accounting.audit import audited_epsilon
from edp.accounting.tradeoff import gaussian_mu
from edp.ledger import planned_ledger
from edp.spec import EDPSpec
from trainables.measure.attacks.auditing import GUESSES, audit, canary_scores
from trainables.measure.attacks.canary import SIBLINGS
from trainables.measure.measuring import permitted_metrics


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
    found = audit(scores, coins, 1e-5)
    counts = [round(1000 * a) + round(1000 * b) for a, b in GUESSES]
    each = 1 - 0.05 / len(GUESSES)
    assert found.epsilon == max(audited_epsilon(1000, r, r, 1e-5, each) for r in counts)
    assert found.right == found.guesses
    assert found.metrics()["epsilon_audited"] == found.epsilon
    assert audit(-scores, coins, 1e-5).epsilon == 0


def test_guesses_that_can_show_nothing_cost_no_confidence():
    """At δ = 6e-4, each at its share of 95 %, a hundred right ones rule nothing out whatever the mechanism."""
    coins, counts = np.arange(1000) % 2 == 0, [round(1000 * a) + round(1000 * b) for a, b in GUESSES]
    found = audit(np.where(coins, 1.0, 0.0), coins, 6e-4)
    each = 1 - 0.05 / len(GUESSES)
    useful = [r for r in counts if audited_epsilon(1000, r, r, 6e-4, each) > 0]
    assert 0 < len(useful) < len(counts)
    share = 1 - 0.05 / len(useful)
    assert found.epsilon == max(audited_epsilon(1000, r, r, 6e-4, share) for r in useful)
    assert audit(np.zeros(4), np.ones(4, bool), 0.4).epsilon == 0


@pytest.mark.slow
def test_scores_that_know_nothing_rule_out_nothing_in_19_of_20_runs():
    rng = np.random.default_rng(0)
    bounds = [audit(rng.normal(size=200), rng.random(200) < 0.5, 1e-5).epsilon for _ in range(100)]
    assert np.mean(np.array(bounds) > 0) <= 0.11  # P[Bin(100, 0.05) > 11] = 0.4 %


@pytest.mark.slow
def test_the_bound_stays_below_the_truth_of_a_gaussian_mechanism():
    """μ = 1: ε is 4.38 at δ = 1e-5. The canaries' scores are its outputs."""
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(60):
        coins = rng.random(400) < 0.5
        bounds.append(audit(rng.normal(coins * 1.0, 1.0), coins, 1e-5).epsilon)
    assert max(bounds) < 4.377
    assert np.median(bounds) > 0.1


def test_what_is_permitted_is_of_one_example_whatever_the_unit_of_the_ledger():
    of_micro_batch, of_example = ledger(2.0, unit="micro_batch"), ledger(2.0)
    assert permitted_metrics(of_micro_batch, 5e-4) == permitted_metrics(of_example, 5e-4)
    by_user = ledger(2.0, unit="user")
    assert permitted_metrics(by_user, 5e-4)["gaussian_mu"] == gaussian_mu(by_user, 5e-4)
