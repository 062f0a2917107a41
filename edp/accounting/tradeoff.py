"""What a mechanism permits any attack: the largest true positive rate at each false positive rate.

An attack decides from everything that a run released whether a unit took part. Its FPR is how often it says so of a
unit that did not, its TPR how often of one that did. 1 - TPR as a function of FPR is the trade-off function of Dong,
Roth and Su (2022), "Gaussian Differential Privacy"; here it is TPR itself, which is concave. A Gaussian mechanism's is
`Φ(Φ⁻¹(FPR) + μ)`; with Poisson samples it comes from the privacy loss distribution (`edp.accounting.pld`), whose
discretisation leaves it never too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from edp.accounting.composition import Composition
from edp.accounting.epsilon import composition_of, quick_epsilon
from edp.accounting.pld import Losses, Pair, pld_losses
from edp.ledger import Ledger

Array = NDArray[np.float64]

_LEAST_RATE = 1e-3
"""Error rates below it, or below δ where that is smaller, have no say in `gaussian_mu`."""


class TradeOff(Protocol):
    """TPR over FPR: concave, from `most_tpr(0) >= 0` to `most_tpr(1) = 1`."""

    def most_tpr(self, fpr: float) -> float:
        """The largest TPR at `fpr` (0..1)."""

    def least_fpr(self, tpr: float) -> float:
        """The least FPR at which a TPR of `tpr` (0..1) is possible."""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism with sensitivity over noise std `mu`, infinite where there is no noise."""

    mu: float

    def most_tpr(self, fpr: float) -> float:
        """Dong, Roth and Su (2022), equation 6."""
        return float(ndtr(ndtri(fpr) + self.mu)) if math.isfinite(self.mu) else 1.0

    def least_fpr(self, tpr: float) -> float:
        """Its inverse."""
        return float(ndtr(ndtri(tpr) - self.mu)) if math.isfinite(self.mu) else 0.0


@dataclass(frozen=True, eq=False)
class Curve:
    """Straight lines between points (P,), both coordinates rising; level before the first and after the last."""

    fpr: Array
    tpr: Array

    def most_tpr(self, fpr: float) -> float:
        """By interpolation."""
        return float(np.interp(fpr, self.fpr, self.tpr))

    def least_fpr(self, tpr: float) -> float:
        """By interpolation: 0 up to the first point's TPR."""
        return float(np.interp(tpr, self.tpr, self.fpr))

    @classmethod
    def of(cls, losses: Losses, interval: float) -> Curve:
        """The most powerful tests (Neyman and Pearson) between the two distributions of a privacy loss: outputs are
        taken for a participant's in the order of their loss, those that only one can have had first."""
        held = losses.mass > 0
        loss = interval * np.arange(losses.first, losses.first + len(losses.mass))[held][::-1]
        tpr = losses.lost + np.cumsum(losses.mass[held][::-1])
        # Far below any loss that matters, where rounding errors of the FFT would be blown up, e^-loss is cut.
        fpr = np.cumsum(losses.mass[held][::-1] * np.exp(-np.maximum(loss, -700.0)))
        return cls(np.concatenate([[0.0], np.minimum(fpr, 1.0)]), np.concatenate([[losses.lost], np.minimum(tpr, 1.0)]))


def attack_trade_off(c: Composition, delta: float) -> TradeOff:
    """What a composition permits an attack that tells participants from others.

    Args:
        delta: what ε is reported at; rates far below it are resolved poorly, and TPR is then too large.
    """
    return _of(c, delta, itemgetter(0))


def audit_trade_off(c: Composition, delta: float) -> TradeOff:
    """The same where a fair coin says who takes part and the attack guesses the coin: half of its errors are of each
    kind, and the better way round goes first."""
    return _of(c, delta, _both_ways)


def most_tpr(ledger: Ledger, fpr: float, delta: float) -> float:
    """The largest TPR at `fpr` that any attack on what the ledger holds can have, for one unit.

    Raises:
        UserError: as `epsilon`.
    """
    c = composition_of(ledger)
    always = Gaussian(c.mu_if_always_drawn).most_tpr(fpr)
    return min(always, attack_trade_off(c, delta).most_tpr(fpr))


def gaussian_mu(ledger: Ledger, delta: float) -> float:
    """μ of Gaussian differential privacy: the least whose mechanism permits attacks whatever the ledger permits.

    Exact without Poisson samples; with them, at FPR and 1 - TPR of at least 1e-3, or δ where that is less.

    Raises:
        UserError: as `epsilon`.
    """
    c = composition_of(ledger)
    if not c.sampled:
        return c.mu
    least = min(delta, _LEAST_RATE)
    fpr = ndtr(np.linspace(ndtri(least), -ndtri(least), 400))
    curves = [_of(c, delta, itemgetter(way)) for way in (0, 1)]
    tpr = np.array([[curve.most_tpr(x) for x in fpr] for curve in curves])
    if tpr[:, 0].max() >= 1 - least:  # nothing is left to tell how much farther apart they are
        return c.mu_if_always_drawn
    mu = (ndtri(np.minimum(tpr, 1 - least)) - ndtri(fpr)).max()
    return min(float(mu), c.mu_if_always_drawn)


def _of(c: Composition, delta: float, choose: Callable[[Pair], Losses]) -> TradeOff:
    found = _losses(c, delta) if c.sampled and math.isfinite(c.mu_if_always_drawn) else None
    if found is None:
        return Gaussian(c.mu_if_always_drawn)
    pair, interval = found
    return Curve.of(choose(pair), interval)


@lru_cache(maxsize=4)  # one run's is asked for at several rates
def _losses(c: Composition, delta: float) -> tuple[Pair, float] | None:
    near = quick_epsilon(c, delta)
    return pld_losses(c, delta, near) if near > 0 else None


def _both_ways(pair: Pair) -> Losses:
    first = min(losses.first for losses in pair)
    mass = np.zeros(max(losses.first + len(losses.mass) for losses in pair) - first)
    for losses in pair:
        mass[losses.first - first :][: len(losses.mass)] += losses.mass / 2
    return Losses(first, mass, (pair[0].lost + pair[1].lost) / 2)
