"""An attack's figures against slow, literal versions and against distributions that are known."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from trainables.measure.attacks.roc import clopper_pearson, measure, rates_at_fpr, tpr_interval


def test_auc_is_the_share_of_pairs_in_order_ties_counting_one_half():
    rng = np.random.default_rng(0)
    members, others = rng.integers(0, 6, 40).astype(float), rng.integers(0, 5, 30).astype(float)
    pairs = [1.0 if m > n else 0.5 if m == n else 0.0 for m in members for n in others]
    assert measure("a", members, others).auc == pytest.approx(np.mean(pairs))


def normals(members=2000, others=1500):
    rng = np.random.default_rng(1)
    return np.round(rng.normal(1, 1, members), 2), np.round(rng.normal(0, 1, others), 2)


@pytest.mark.parametrize("limit", [0.01, 0.001])
@pytest.mark.parametrize(
    ("members", "others"),
    [
        normals(),
        normals(700, 90),
        (np.arange(1000.0), np.arange(1000.0)),  # every threshold a tie: one long diagonal
        (np.zeros(50), np.zeros(50)),
        (np.ones(50), np.zeros(50)),
        (np.array([np.inf, 0.0]), np.full(3, -np.inf)),
    ],
)
def test_tpr_at_an_fpr_is_that_of_the_best_threshold_that_keeps_to_it(members, others, limit):
    keep = [t for t in np.unique([*members, *others, np.inf]) if (others >= t).mean() <= limit]
    best = max(float((members >= t).mean()) for t in keep)
    realised = max((others >= t).mean() for t in keep if (members >= t).mean() == best)
    tpr, fpr = rates_at_fpr(members, others, limit)
    assert tpr == pytest.approx(best)
    assert fpr <= limit
    assert fpr == pytest.approx(realised)
    result = measure("a", members, others)
    found = {
        0.01: (result.tpr_at_1pct_fpr, result.realised_1pct_fpr),
        0.001: (result.tpr_at_01pct_fpr, result.realised_01pct_fpr),
    }
    assert found[limit] == (tpr, fpr)


def test_the_curve_has_every_corner_and_no_more():
    curve = measure("a", np.array([3.0, 2.0, 2.0, 0.0]), np.array([2.0, 1.0, 1.5, 0.5]))
    assert list(zip(curve.fpr, curve.tpr, strict=True)) == [(0, 0), (0, 0.25), (0.25, 0.75), (1, 0.75), (1, 1)]
    diagonal = measure("a", np.arange(100.0), np.arange(100.0))
    assert len(diagonal.fpr) == 101  # a tie's step is not a straight way to those of its neighbours


@pytest.mark.parametrize("count", [1, 2, 500])
def test_scores_apart_without_overlap_are_as_sure_as_there_are_many(count):
    found = measure("a", np.ones(count), np.zeros(2 * count))
    assert found.auc == 1.0
    assert found.auc_ci == (pytest.approx(0.025 ** (1 / count)), 1.0)
    assert measure("a", np.zeros(count), np.ones(count)).auc_ci == (0.0, pytest.approx(1 - 0.025 ** (1 / count)))


@pytest.mark.parametrize(
    ("limit", "each", "gap"), [(0.01, 500, 1.0), (0.01, 2500, 3.0), (0.001, 2500, 2.0), (0.01, 40, 1.0)]
)
@pytest.mark.slow
def test_the_interval_of_a_tpr_holds_the_truth_in_95_of_100_samples(limit: float, each: int, gap: float) -> None:
    """The truth is the TPR at the threshold of all non-members, which the sample does not know."""
    rng, truth = np.random.default_rng(3), norm.sf(norm.isf(limit) - gap)
    found = [tpr_interval(rng.normal(gap, 1, each), rng.normal(0, 1, each), limit) for _ in range(200)]
    assert sum(low <= truth <= high for low, high in found) >= 181  # P[Bin(200, 0.95) < 181] = 0.3 %
    assert all(low <= high for low, high in found)
    if each * limit > 4:
        assert np.mean([low > 0 and high < 1 for low, high in found]) > 0.9, "it says something"


def test_the_interval_of_a_tpr_knows_when_the_non_members_are_too_few() -> None:
    low, high = tpr_interval(np.ones(900), np.zeros(50), 0.001)
    assert low == 0.0  # the threshold of one in a thousand may be anywhere above all of fifty
    assert high == 1.0
    assert tpr_interval(np.full(9, -np.inf), np.array([np.inf, 0.0]), 0.01)[0] == 0.0


@pytest.mark.parametrize(("successes", "trials"), [(0, 20), (3, 20), (20, 20), (117, 2350)])
def test_clopper_pearson_leaves_a_fortieth_on_either_side(successes, trials):
    low, high = clopper_pearson(successes, trials)
    assert low <= successes / trials <= high
    if successes > 0:
        assert binom.sf(successes - 1, trials, low) == pytest.approx(0.025)
    if successes < trials:
        assert binom.cdf(successes, trials, high) == pytest.approx(0.025)


def test_infinite_scores_have_an_order_and_nan_is_refused():
    result = measure("a", np.array([np.inf, 1.0]), np.array([-np.inf, 0.0]))
    assert result.auc == 1.0
    assert result.tpr_at_1pct_fpr == 1.0
    with pytest.raises(ValueError, match="not a number"):
        measure("a", np.array([np.nan]), np.array([0.0]))
    with pytest.raises(ValueError, match="empty"):
        measure("a", np.array([]), np.array([0.0]))
