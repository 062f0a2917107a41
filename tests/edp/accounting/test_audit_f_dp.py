"""The lower bound of ε from one run's guesses and a trade-off curve: derived, held against the slow way, simulated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom

from edp.accounting.audit import audited_epsilon, audited_epsilon_f_dp, rules_out
from edp.accounting.composition import Composition, SampledSteps
from edp.accounting.epsilon import epsilon_of
from edp.accounting.gaussian import gaussian_epsilon
from edp.accounting.tradeoff import Gaussian, TradeOff, audit_trade_off

DELTA = 5e-4
GAUSSIAN = Composition(mu=1.0)


def mu_of(epsilon: float, delta: float = DELTA) -> float:
    return float(brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, 1e-3, 50))


@dataclass(frozen=True)
class Pure:
    """What pure ε permits: randomised response reaches it."""

    epsilon: float

    def max_tpr(self, fpr: float) -> float:
        return min(math.exp(self.epsilon) * fpr, 1 - math.exp(-self.epsilon) * (1 - fpr))

    def min_fpr(self, tpr: float) -> float:
        return max(math.exp(-self.epsilon) * tpr, 1 - math.exp(self.epsilon) * (1 - tpr))


def p_value(curve: TradeOff, m: int, r: int, v: int) -> float:
    """The least 1 - confidence at which the guesses rule the curve out, or 1e-12 where it is no more."""
    low, high = 1e-12, 1 - 1e-12
    if rules_out(curve, m, r, v, 1 - low):
        return low
    for _ in range(50):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if rules_out(curve, m, r, v, 1 - middle) else (middle, high)
    return high


def literal_p_value(mu: float, m: int, r: int, v: int) -> float:
    """The largest P[V >= v] that the inequalities leave, by linear programming, each replaced by many tangents.

    Tangents lie above the concave curve: never less than the truth, and no more by much.
    """
    x = ndtr(np.linspace(-9, 4, 1500))
    slope = np.exp(-0.5 * (ndtri(x) + mu) ** 2 + 0.5 * ndtri(x) ** 2)
    offset = ndtr(ndtri(x) + mu) - slope * x
    values = np.arange(r + 1)
    rows, bounds = [], []
    for i in range(1, r + 1):
        right = np.where(values >= i, values / m, 0.0)
        wrong = np.where(values >= i - 1, (r - values) / m, 0.0)
        for a, b in zip(slope, offset, strict=True):
            rows.append(right - a * wrong)
            bounds.append(b)
    found = linprog(
        -(values >= v).astype(float), A_ub=np.array(rows), b_ub=bounds, A_eq=np.ones((1, r + 1)), b_eq=[1.0]
    )
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize(
    ("mu", "m", "r", "v"), [(1.0, 8, 8, 7), (1.0, 8, 8, 5), (0.3, 6, 4, 4), (2.0, 20, 10, 10), (1.0, 30, 6, 5)]
)
def test_it_agrees_with_all_distributions_of_right_guesses_searched_by_linear_programming(mu, m, r, v):
    assert p_value(Gaussian(mu), m, r, v) == pytest.approx(literal_p_value(mu, m, r, v), rel=2e-3)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_one_canary_is_guessed_right_as_often_as_the_best_test_between_two_gaussians(mu):
    assert p_value(Gaussian(mu), 1, 1, 1) == pytest.approx(ndtr(mu / 2), rel=1e-6)
    assert p_value(Pure(mu), 1, 1, 1) == pytest.approx(expit(mu), rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(m=st.integers(1, 60), share=st.floats(0.1, 1), missed=st.integers(0, 20), epsilon=st.floats(0.05, 4))
def test_what_independent_answers_reach_is_not_ruled_out(m, share, missed, epsilon):
    """Randomised response, and Gaussian canaries of whom all are guessed: V is binomial."""
    r = max(1, round(share * m))
    v = max(0, r - missed)
    reached = binom.sf(v - 1, r, expit(epsilon))
    assert p_value(Pure(epsilon), m, r, v) >= reached * (1 - 1e-6) - 1e-15  # which rounding takes from sums near 1
    reached = binom.sf(v - 1, m, ndtr(epsilon / 2)) if v <= m else 0.0
    assert p_value(Gaussian(epsilon), m, m, v) >= reached * (1 - 1e-6) - 1e-15


@settings(max_examples=40, deadline=None)
@given(r=st.integers(20, 200), missed=st.integers(0, 20), mu=st.floats(0.2, 3))
def test_what_rules_out_a_curve_rules_out_all_below_it_and_so_do_more_right_guesses(r, missed, mu):
    if rules_out(Gaussian(mu), 200, r, r - missed, 0.95):
        assert rules_out(Gaussian(0.9 * mu), 200, r, r - missed, 0.95)
        assert rules_out(Gaussian(mu), 200, r, min(r, r - missed + 1), 0.95)
        assert rules_out(Gaussian(mu), 200, r, r - missed, 0.9)


@pytest.mark.parametrize(("m", "of_any", "of_gaussian"), [(500, 4.31, 8.96), (1000, 4.28, 9.97), (5000, 4.11, 12.25)])
def test_the_ceiling_is_twice_as_high_at_the_delta_of_the_recipes(m, of_any, of_gaussian):
    assert round(audited_epsilon(m, m, m, DELTA), 2) == of_any
    assert audited_epsilon_f_dp(GAUSSIAN, m, [(m, m)], DELTA) == pytest.approx(of_gaussian, rel=2e-3)


@pytest.mark.parametrize(("epsilon", "r", "of_any", "of_gaussian"), [(8.0, 100, 1.78, 4.0), (20.0, 500, 3.56, 7.9)])
def test_what_ideal_gaussian_canaries_show(epsilon, r, of_any, of_gaussian):
    rng, m, mu = np.random.default_rng(0), 1000, mu_of(epsilon)
    found = []
    for _ in range(10):
        coins = rng.random(m) < 0.5
        v = right_guesses(rng.normal(coins * mu, 1) - mu / 2, coins, r)
        found.append((audited_epsilon(m, r, v, DELTA), audited_epsilon_f_dp(GAUSSIAN, m, [(r, v)], DELTA)))
    assert np.mean(found, axis=0) == pytest.approx([of_any, of_gaussian], rel=0.05)


def right_guesses(scores: np.ndarray, coins: np.ndarray, r: int) -> int:
    surest = np.argsort(-abs(scores), kind="stable")[:r]
    return int(((scores > 0) == coins)[surest].sum())


def _gaussian_scores(mu: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    return lambda rng, coins: rng.normal(coins * mu, 1) - mu / 2


def _sampled_scores(c: Composition) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    """The log likelihood ratio of everything that a canary of its own coordinate leaves in Poisson sampled steps."""
    (s,) = c.sampled

    def scores(rng: np.random.Generator, coins: np.ndarray) -> np.ndarray:
        drawn = (rng.random((len(coins), s.steps)) < s.rate) & coins[:, None]
        x = rng.normal(drawn, s.z)
        return np.log(1 - s.rate + s.rate * np.exp((2 * x - 1) / (2 * s.z**2))).sum(1)

    return scores


SAMPLED = Composition(sampled=(SampledSteps(0.2, 0.9, 40),))


@pytest.mark.parametrize(
    ("c", "scores"),
    [
        (Composition(mu=0.5), _gaussian_scores(0.5)),
        (Composition(mu=2.0), _gaussian_scores(2.0)),
        (SAMPLED, _sampled_scores(SAMPLED)),
    ],
    ids=["little", "much", "poisson"],
)
def test_the_ledgers_own_curve_is_ruled_out_in_at_most_one_of_twenty_ideal_runs(c, scores):
    """All of the bounds' inequalities are with the ideal attacker; 400 runs, the number of guesses chosen by their
    outcome, as an audit does."""
    rng, m, numbers = np.random.default_rng(7), 300, (30, 75, 150, 300)
    curve, each = audit_trade_off(c, DELTA), 1 - 0.05 / 4
    above = 0
    for _ in range(400):
        coins = rng.random(m) < 0.5
        found = scores(rng, coins)
        above += any(rules_out(curve, m, r, right_guesses(found, coins, r), each) for r in numbers)
    assert above <= 0.05 * 400


def test_without_anything_to_see_the_bound_is_above_0_in_at_most_one_of_twenty_runs():
    rng, m = np.random.default_rng(3), 300
    above = 0
    for _ in range(300):
        coins = rng.random(m) < 0.5
        guesses = [(r, right_guesses(rng.normal(size=m), coins, r)) for r in (30, 75, 150)]
        above += audited_epsilon_f_dp(GAUSSIAN, m, guesses, DELTA) > 0
    assert above <= 0.05 * 300 + 3 * math.sqrt(0.05 * 0.95 * 300)


def test_the_shape_of_the_ledgers_own_noise_is_what_counts():
    """The same guesses, the same ε of the ledger: a family of Poisson samples gives another bound than a Gaussian's."""
    epsilon = epsilon_of(SAMPLED, DELTA)
    same = Composition(mu=mu_of(epsilon))
    own, gaussian = (audited_epsilon_f_dp(c, 300, [(100, 97)], DELTA) for c in (SAMPLED, same))
    assert abs(own - gaussian) > 0.05 * gaussian
    for c, bound in ((SAMPLED, own), (same, gaussian)):
        assert (bound > epsilon) == rules_out(audit_trade_off(c, DELTA), 300, 100, 97, 0.95)


def test_the_bound_does_not_depend_on_how_much_noise_the_ledger_holds():
    """Only the family does: bounds of one family agree wherever the search for the factor starts."""
    guesses = [(100, 95), (200, 170)]
    bounds = [audited_epsilon_f_dp(Composition(mu=mu), 1000, guesses, DELTA) for mu in (1e-2, 1.0, 2.7, 500.0)]
    assert bounds == pytest.approx([bounds[0]] * 4, rel=5e-3)
    assert audited_epsilon_f_dp(Composition(mu=math.inf), 1000, guesses, DELTA) == pytest.approx(bounds[0], rel=5e-3)
    assert audited_epsilon_f_dp(Composition(), 1000, guesses, DELTA) == pytest.approx(bounds[0], rel=5e-3)


def test_several_ways_to_guess_share_the_error():
    one = audited_epsilon_f_dp(GAUSSIAN, 1000, [(200, 190)], DELTA, 1 - 0.05 / 2)
    assert audited_epsilon_f_dp(GAUSSIAN, 1000, [(200, 190), (100, 50)], DELTA) == pytest.approx(one, rel=1e-9)
    assert audited_epsilon_f_dp(GAUSSIAN, 1000, [(200, 190)], DELTA) > one


def test_no_canaries_rule_nothing_out():
    assert audited_epsilon_f_dp(GAUSSIAN, 0, [(0, 0)], 1e-5) == 0 == audited_epsilon(0, 0, 0, 1e-5)


@pytest.mark.parametrize(("r", "v"), [(0, 0), (100, 50), (100, 20)])
def test_guesses_no_better_than_a_coin_rule_nothing_out(r, v):
    assert audited_epsilon_f_dp(GAUSSIAN, 1000, [(r, v)], 1e-5) == 0
    assert audited_epsilon_f_dp(GAUSSIAN, 1000, [], 1e-5) == 0


@pytest.mark.parametrize(("r", "v", "delta"), [(1001, 5, 0.1), (5, 6, 0.1), (5, -1, 0.1), (5, 5, 1.0)])
def test_impossible_counts_are_refused(r, v, delta):
    with pytest.raises(ValueError, match="must"):
        audited_epsilon_f_dp(GAUSSIAN, 1000, [(r, v)], delta)
