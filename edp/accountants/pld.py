"""Privacy loss distributions: Koskela et al. (2020), discretised by connecting the dots (Doroshenko et al.
2022).

Every discretisation gives an upper bound; a finer one gives a lower bound of nothing, only a tighter upper
one. Hence it may be refined until that no longer pays.
"""

from __future__ import annotations

import math

from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq

from edp.accountants.composition import Composition, SampledSteps

Memo = dict[float, tuple[tuple[SampledSteps, ...], pld.PrivacyLossDistribution]]
"""The sampled steps composed last, by interval: a longer run of the same beginning goes on from there."""

# Coarser ones overflow in the library.
_COARSEST = 50.0
_REFINEMENT = 4
# Below this relative gain, the next refinement would gain about a fifteenth of it.
_STABLE = 2e-3
_LARGEST_GRID = 1 << 19
_LARGEST_EPSILON = 1e6


def pld_epsilon(c: Composition, delta: float, near: float, memo: Memo | None = None) -> float:
    """An upper bound of ε at `delta`, within about 1e-3 of the truth; the best one from z of about 1e-2
    upwards.

    Args:
        near: another upper bound of ε, from which the discretisation follows.
        memo: kept between calls whose compositions continue each other.

    Infinite above an ε of 1e6, where `participation_epsilon` is as good and the grid would be too large.
    """
    if near > _LARGEST_EPSILON:
        return math.inf
    memo = {} if memo is None else memo
    # Intervals from one ladder, so that runs which continue each other share them.
    rung = max(0, math.ceil(math.log(_COARSEST * 1000 / max(near, 1e-9), _REFINEMENT)))
    interval, best = _COARSEST / _REFINEMENT**rung, math.inf
    while True:
        value = pld_epsilon_at(c, delta, interval, near, memo)
        gain, best = best - value, min(best, value)
        finer = interval / _REFINEMENT
        if gain <= _STABLE * best or _widest_loss(c) / finer > _LARGEST_GRID:
            return best
        interval = finer


def pld_epsilon_at(
    c: Composition, delta: float, interval: float, near: float = 1.0, memo: Memo | None = None
) -> float:
    """The same bound with one given discretisation `interval` of the privacy loss (nats)."""
    distribution = _composed(c, interval, {} if memo is None else memo)

    def excess(epsilon: float) -> float:
        return math.log(max(float(distribution.get_delta_for_epsilon(epsilon)), 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    above = near
    while excess(above) > 0:
        above *= 2
        if above > 1e12:  # the truncated tails alone hold more than delta
            return math.inf
    return float(brentq(excess, 0.0, above, xtol=1e-13, rtol=1e-12))


def _composed(c: Composition, interval: float, memo: Memo) -> pld.PrivacyLossDistribution:
    done, total = memo.get(interval, ((), pld.identity(interval)))
    if c.sampled[: len(done)] != done:
        done, total = (), pld.identity(interval)
    for s in c.sampled[len(done) :]:
        step = pld.from_gaussian_mechanism(s.z, value_discretization_interval=interval, sampling_prob=s.rate)
        total = total.compose(step.self_compose(s.steps))
    memo[interval] = (c.sampled, total)
    if c.mu > 0:
        total = total.compose(pld.from_gaussian_mechanism(1 / c.mu, value_discretization_interval=interval))
    return total


def _widest_loss(c: Composition) -> float:
    """About the largest privacy loss of a single mechanism (nats), which a grid must span."""
    mus = [c.mu, *(1 / s.z for s in c.sampled)]
    return max(mu * (mu / 2 + 10) for mu in mus)
