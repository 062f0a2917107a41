"""The lower bound of ε from one run's guesses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from edp.accounting.audit import audited_epsilon
from edp.accounting.gaussian import gaussian_epsilon


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "expected", "digits"),
    [
        (1000, 100, 100, 1e-5, 3.46538, 5),
        (1000, 100, 90, 1e-5, 1.62614, 5),
        (1000, 1000, 600, 0.0, 0.29747, 5),
        (5000, 500, 400, 5e-4, 0.59437, 5),
        (1000, 1000, 1000, 0.0, 5.81, 2),
        (100_000, 100_000, 100_000, 0.0, 10.42, 2),
    ],
)
def test_reference_values(m, r, v, delta, expected, digits):
    assert round(audited_epsilon(m, r, v, delta), digits) == expected


def test_all_guesses_right_has_a_closed_form_without_delta():
    q = 0.05 ** (1 / 200)
    assert audited_epsilon(500, 200, 200, 0.0) == pytest.approx(math.log(q / (1 - q)), abs=1e-8)


@pytest.mark.parametrize(("r", "v"), [(0, 0), (100, 50), (100, 20)])
def test_guesses_no_better_than_a_coin_rule_nothing_out(r, v):
    assert audited_epsilon(1000, r, v, 1e-5) == 0


@settings(max_examples=25, deadline=None)
@given(r=st.integers(50, 300), missed=st.integers(1, 20), delta=st.sampled_from([0.0, 1e-6, 1e-4]))
@pytest.mark.slow
def test_more_right_guesses_rule_out_more_and_more_delta_or_confidence_less(r, missed, delta):
    bound = audited_epsilon(1000, r, r - missed, delta)
    assert audited_epsilon(1000, r, r - missed + 1, delta) >= bound
    assert audited_epsilon(1000, r, r - missed, delta + 1e-5) <= bound
    assert audited_epsilon(1000, r, r - missed, delta, confidence=0.99) <= bound


@pytest.mark.slow
def test_it_stays_below_the_truth_for_a_gaussian_mechanism_in_19_of_20_runs():
    """Each canary scores N(±μ/2, 1); the attacker guesses the sign where it is surest. 300 runs."""
    rng, mu, m, r, delta = np.random.default_rng(1), 1.0, 400, 40, 1e-5
    truth = gaussian_epsilon(mu, delta)
    bounds = []
    for _ in range(300):
        included = rng.choice([-1, 1], m)
        score = norm.rvs(included * mu / 2, 1, random_state=rng)
        surest = np.argsort(-abs(score))[:r]
        bounds.append(audited_epsilon(m, r, int((np.sign(score) == included)[surest].sum()), delta))
    assert np.mean(np.array(bounds) > truth) <= 0.05
    assert np.median(bounds) > 0.3


@pytest.mark.parametrize(
    ("m", "r", "v", "delta", "confidence"),
    [(10, 11, 5, 0, 0.95), (10, 5, 6, 0, 0.95), (10, 5, -1, 0, 0.95), (10, 5, 5, 1, 0.95), (10, 5, 5, 0, 1)],
)
def test_impossible_counts_are_refused(m, r, v, delta, confidence):
    with pytest.raises(ValueError, match="must"):
        audited_epsilon(m, r, v, delta, confidence)
