"""Intervals hold what they promise: against literal resampling, against brute force, and over many samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from trainables.measure.attacks.roc import auc_interval, measure
from trainables.measure.predictions import ser_interval


def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    slots = 1 + rng.poisson(2.0, n)
    return rng.binomial(slots, 0.2), slots


def test_the_interval_of_ser_is_that_of_utterances_drawn_one_by_one() -> None:
    rng = np.random.default_rng(3)
    errors, slots = drawn(rng, 400)
    chosen = rng.integers(0, 400, (4_000, 400))
    literal = np.percentile(errors[chosen].sum(1) / slots[chosen].sum(1), [2.5, 97.5])
    assert ser_interval(errors, slots) == pytest.approx(literal, abs=2e-3)
    assert ser_interval(errors, slots) == ser_interval(errors[::-1].copy(), slots[::-1].copy()), "seeded"


@pytest.mark.slow
def test_ser_intervals_hold_the_true_rate_about_95_times_in_100() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        low, high = ser_interval(*drawn(rng, 300))
        held += low <= 0.2 <= high
    assert 0.91 <= held / 400 <= 0.98


def test_a_model_that_is_always_right_has_an_interval_of_no_width() -> None:
    assert ser_interval(np.zeros(5, int), np.ones(5, int)) == (0.0, 0.0)


def test_the_interval_of_an_auc_follows_delongs_variance_written_out() -> None:
    rng = np.random.default_rng(7)
    inside, outside = rng.integers(0, 8, 40) + 1.0, rng.integers(0, 8, 30).astype(float)  # with ties
    wins = (inside[:, None] > outside) + 0.5 * (inside[:, None] == outside)
    variance = wins.mean(1).var(ddof=1) / 40 + wins.mean(0).var(ddof=1) / 30
    auc = roc_auc_score(np.repeat([1, 0], [40, 30]), np.concatenate([inside, outside]))
    assert auc_interval(inside, outside) == pytest.approx(
        (auc - 1.959964 * variance**0.5, min(1, auc + 1.959964 * variance**0.5)), abs=1e-6
    )


def test_the_interval_of_an_auc_is_that_of_members_and_non_members_drawn_again() -> None:
    rng = np.random.default_rng(8)
    inside, outside = rng.normal(0.4, 1, 500), rng.normal(0, 1, 600)
    wins_mn = inside[:, None] > outside
    drawn_rm = rng.multinomial(500, np.full(500, 1 / 500), 4_000)
    drawn_rn = rng.multinomial(600, np.full(600, 1 / 600), 4_000)
    literal = np.percentile((drawn_rm @ wins_mn * drawn_rn).sum(1) / (500 * 600), [2.5, 97.5])
    assert auc_interval(inside, outside) == pytest.approx(literal, abs=3e-3)


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_auc_intervals_hold_the_true_area_about_95_times_in_100(gap: float) -> None:
    rng, truth = np.random.default_rng(9), norm.cdf(gap / 2**0.5)
    intervals = [auc_interval(rng.normal(gap, size=200), rng.normal(size=200)) for _ in range(400)]
    assert 0.92 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.98


def test_scores_that_do_not_overlap_are_as_sure_as_there_are_many() -> None:
    assert auc_interval([3.0, 4.0], [1.0, 2.0]) == (pytest.approx(0.025**0.5), 1.0)
    assert auc_interval([1.0], [3.0, 4.0]) == (0.0, pytest.approx(0.975))


@pytest.mark.parametrize(("inside", "outside"), [([2.0] * 9, [2.0] * 7), ([3.0], [*range(7)])])
def test_scores_without_a_spread_say_no_more_than_there_are_of_them(inside: list[float], outside: list[float]) -> None:
    low, high = auc_interval(inside, outside)
    assert low < 0.1
    assert high > 0.9
    assert measure("any", np.array(inside), np.array(outside)).auc_ci == (low, high)
