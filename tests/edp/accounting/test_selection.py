"""ε of a whole sweep."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import norm

from edp.accounting.epsilon import epsilon
from edp.accounting.gaussian import gaussian_delta, gaussian_epsilon
from edp.accounting.rdp import ORDERS
from edp.accounting.selection import composed_epsilon, random_stopping_epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec, UserError


def trial(epochs=1, **spec):
    return planned_ledger(
        EDPSpec(**spec), epochs=epochs, micro_batches=1, steps_per_epoch=1000, rate=0.01, single_example=True
    )


def test_fifty_poisson_trials_composed_and_the_best_of_a_random_number_of_them():
    one = trial(sampling="poisson")
    assert composed_epsilon([one] * 50, 1e-5) == pytest.approx(16.3, abs=0.05)
    assert random_stopping_epsilon(one, 1e-5, 50, 1) == pytest.approx(3.577, abs=0.005)  # 4.94 by Rényi divergences


def test_shuffled_trials_add_up_like_epochs():
    trials = [trial(epochs) for epochs in (3, 0, 1, 6)]
    assert composed_epsilon(trials, 1e-5) == pytest.approx(epsilon(trial(10), 1e-5), rel=1e-9)


def test_shuffled_and_poisson_trials_compose():
    shuffled, poisson = trial(z0=3.0), trial(sampling="poisson")
    both = composed_epsilon([shuffled, poisson], 1e-5)
    assert max(epsilon(shuffled, 1e-5), epsilon(poisson, 1e-5)) < both < math.inf
    assert both == pytest.approx(composed_epsilon([poisson, shuffled], 1e-5), rel=1e-6)


def test_a_sweep_of_one_trial_costs_that_trial_and_one_of_none_nothing():
    assert composed_epsilon([trial(5)], 1e-5) == epsilon(trial(5), 1e-5)
    assert composed_epsilon([], 1e-5) == 0


def test_plain_sgd_on_the_private_corpus_makes_a_sweep_infinite():
    assert composed_epsilon([trial(), Ledger(private=False)], 1e-5) == math.inf


def test_random_stopping_costs_more_than_one_trial_and_more_with_more_trials():
    costs = [random_stopping_epsilon(trial(z0=2.0), 1e-5, mean, 1) for mean in (2, 10, 100)]
    assert epsilon(trial(z0=2.0), 1e-5) < costs[0] < costs[1] < costs[2]
    assert random_stopping_epsilon(trial(z0=2.0), 1e-5, 1, 1) == pytest.approx(epsilon(trial(z0=2.0), 1e-5))
    assert epsilon(trial(z0=2.0), 1e-5) < random_stopping_epsilon(trial(z0=2.0), 1e-5, 10, 0) < math.inf
    assert epsilon(trial(z0=2.0), 1e-5) < random_stopping_epsilon(trial(z0=2.0), 1e-5, 10, math.inf) < math.inf
    assert random_stopping_epsilon(Ledger(), 1e-5, 10, 1) == 0


@pytest.mark.parametrize(
    ("base", "mean", "shape", "message"),
    [
        (trial(alpha="paper"), 10, 1, "infinite epsilon"),
        (Ledger(private=False), 10, 1, "infinite epsilon"),
        (trial(), 0.5, 1, "mean = 0.5"),
        (trial(), math.inf, 1, "mean = inf"),
        (trial(), math.nan, 1, "mean = nan"),
        (trial(), 10, -0.5, "shape = -0.5"),
        (trial(), 0.5, math.inf, "mean = 0.5"),
        (trial(), 10, math.nan, "shape = nan"),
    ],
)
def test_random_stopping_refuses_what_its_theorem_does_not_cover(base, mean, shape, message):
    with pytest.raises(UserError, match=message):
        random_stopping_epsilon(base, 1e-5, mean, shape)


DELTA = 5e-4
SHAPES = [0, 0.5, 1, 3, math.inf]


def one_step(mu, rate=1.0):
    """A trial of one step: N(0, 1) without the unit, N(mu, 1) with it, drawn with probability `rate`."""
    spec = EDPSpec(z0=1 / mu, sampling="shuffle" if rate == 1 else "poisson")
    return planned_ledger(spec, epochs=1, micro_batches=1, steps_per_epoch=1, rate=rate, single_example=True)


def chances(shape, gamma):
    """P(K = 1), P(K = 2), ... as Papernot and Steinke (2022) define them, until hardly any is left."""
    if shape == math.inf:  # Poisson with mean 1/gamma
        k = np.arange(1, int(1 / gamma + 12 / math.sqrt(gamma)) + 20)
        return np.exp(-k * math.log(gamma) - 1 / gamma - np.cumsum(np.log(k)))
    k = np.arange(1, int(25 / gamma))
    if shape == 0:
        return (1 - gamma) ** k / (k * math.log(1 / gamma))
    return np.cumprod((k - 1 + shape) / k) * (1 - gamma) ** k / (gamma**-shape - 1)


def best_of(k, chance, cells):
    """The probability of each cell, the best first, to hold the best of K outputs: summed over K."""
    worse = np.append(1.0, np.maximum(1 - np.cumsum(cells), 0))
    none_better = np.array([chance @ one**k for one in worse])
    return -np.diff(none_better)


def least_delta(epsilons, shape, gamma, mu, rate=1.0):
    """The largest divergence at each ε that some order of the outputs reaches, from the best to the worst.

    Outputs are numbers, in cells of a grid: not to know more than the cell makes the divergence no larger. Those above
    a threshold are the best and the others follow from the lowest on. To this order a limit is due: whatever is far
    more probable without the unit is barely beaten without it, and often with it.
    """
    edges = np.concatenate([[-np.inf], np.linspace(-7, 7 + mu, 281), [np.inf]])
    without = np.diff(ndtr(edges))
    with_unit = (1 - rate) * without + rate * np.diff(ndtr(edges - mu))
    chance = chances(shape, gamma)
    k, divergence = np.arange(1, len(chance) + 1), np.zeros(len(epsilons))
    for threshold in np.arange(-1, 4, 0.25):
        top = np.flatnonzero(edges[:-1] >= threshold)[::-1]
        order = np.concatenate([top, np.arange(len(without) - len(top))])
        a, b = (best_of(k, chance, cells[order]) for cells in (without, with_unit))
        for p, q in ((a, b), (b, a)):
            reached = [np.maximum(p - math.exp(one) * q, 0).sum() for one in epsilons]
            divergence = np.maximum(divergence, reached)
    return divergence


@pytest.mark.parametrize(("mean", "left", "by_rdp"), [(10, 4.8797, 3.55), (40, 3.8875, 2.85), (100, 3.4294, 2.56)])
@pytest.mark.slow
def test_the_best_of_a_geometric_number_costs_what_integration_says_and_hardly_more(mean, left, by_rdp):
    mu = brentq(lambda mu: random_stopping_epsilon(one_step(mu), DELTA, mean, 1) - 8, 0.5, 2)
    assert gaussian_epsilon(mu, DELTA) == pytest.approx(left, abs=1e-4)
    assert left > by_rdp * 1.3
    at_bound, below = least_delta([8, 7.6], 1, 1 / mean, mu)
    assert at_bound <= DELTA < below


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gamma", [0.5, 0.05])
@pytest.mark.parametrize(("mu", "rate"), [(0.1, 1), (1, 1), (3, 1), (1, 0.3)])
def test_no_order_of_the_outputs_exceeds_the_bound(shape, gamma, mu, rate):
    chance = chances(shape, gamma)
    mean = float(chance @ np.arange(1, len(chance) + 1))
    bound = random_stopping_epsilon(one_step(mu, rate), DELTA, mean, shape)
    at_bound, without_selection = least_delta([bound, epsilon(one_step(mu, rate), DELTA)], shape, gamma, mu, rate)
    assert at_bound <= DELTA < without_selection


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gamma", [0.5, 0.05, 0.005])
@pytest.mark.parametrize("mu", [0.1, 1, 3])
def test_it_is_one_trial_at_less_delta_and_the_largest_ratio_of_weights(shape, gamma, mu):
    t = ndtr(np.linspace(-37, 8, 45_001))
    more = ndtr(ndtri(t) + mu)  # the largest probability on a neighbour
    chance = chances(shape, gamma)
    mean = float(chance @ np.arange(1, len(chance) + 1))
    if shape == math.inf:
        ratio = mean * (more - t).max()
    else:
        ratio = (1 + shape) * math.log(((gamma + (1 - gamma) * more) / (gamma + (1 - gamma) * t)).max())
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1 / mu), mean, shape))
    by_profile = ratio + gaussian_epsilon(mu, DELTA / mean)
    found = random_stopping_epsilon(one_step(mu), DELTA, mean, shape)
    assert found == pytest.approx(min(by_profile, accountant.get_epsilon(DELTA)), rel=1e-3)
    if shape < math.inf:
        assert found == pytest.approx(by_profile, rel=1e-6)
        split = np.linspace(0, math.log(1 / gamma), 1001)
        deltas = np.array([gaussian_delta(one, np.array(mu)) for one in split])
        koskela = (1 + shape) * np.log(np.exp(split) + (1 - gamma) / gamma * deltas).min()
        assert ratio < koskela


@pytest.mark.parametrize("spec", [{"sampling": "shuffle"}, {"sampling": "poisson"}])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.slow
def test_more_noise_and_fewer_trials_cost_less(shape, spec):
    by_noise = [random_stopping_epsilon(trial(z0=z0, **spec), 1e-5, 10, shape) for z0 in (4.0, 2.0, 1.0)]
    assert by_noise == sorted(by_noise)
    by_mean = [random_stopping_epsilon(trial(z0=2.0, **spec), 1e-5, mean, shape) for mean in (1, 1 + 1e-9, 3, 1e6)]
    assert by_mean == sorted(by_mean)


def test_a_release_that_tells_the_winners_number_costs_twice_what_the_bound_states():
    """Integrate the release of (number, value), where the best of K Gaussian values is the largest."""
    mu, stop, step = 0.875, 1 / 40, 0.01
    values, numbers = np.arange(-9, 10, step), np.arange(1, 1_000)[:, None]

    def log_density(mean):
        """Number n won: n or more trials were drawn, and all others are below."""
        below = norm.logcdf(values - mean)
        more = np.log(stop) + (numbers - 1) * (np.log1p(-stop) + below) - np.log1p(-(1 - stop) * np.exp(below))
        return norm.logpdf(values - mean) + more

    one, other = log_density(0), log_density(mu)
    assert np.exp(one).sum() * step == pytest.approx(1, abs=1e-6)
    assert (np.exp(one) * np.maximum(-np.expm1(16.3 + other - one), 0)).sum() * step >= DELTA
    assert random_stopping_epsilon(one_step(mu), DELTA, 40, 1) < 8.05
