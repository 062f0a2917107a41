"""The trade-off curve of a mechanism: the largest true positive rate of any attack at each false positive rate.

An attack decides from everything that a run released whether a unit took part. Its FPR is the share of units that did
not take part and were called participants, its TPR that share of those that did. 1 - TPR as a function of FPR is the
trade-off function of Dong, Roth and Su (2022), "Gaussian Differential Privacy"; here the curve is TPR itself, which is
concave. A Gaussian mechanism's is `Φ(Φ⁻¹(FPR) + μ)`; with Poisson samples it comes from the privacy loss distribution
(`edp.accounting.pld`), whose discretisation makes it never too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from edp.accounting.composition import Composition, composition_of
from edp.accounting.epsilon import quick_epsilon
from edp.accounting.pld import Losses, Pair, pld_losses
from edp.ledger import Ledger

Array = NDArray[np.float64]

_MIN_RATE = 1e-3
"""`gaussian_mu` ignores error rates below it, or below δ if that is smaller."""


class TradeOff(Protocol):
    """TPR as a function of FPR: concave, from `max_tpr(0) >= 0` to `max_tpr(1) = 1`."""

    def max_tpr(self, fpr: float) -> float:
        """Return the largest TPR at `fpr` (0..1)."""


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian mechanism with sensitivity over noise std `mu`, infinite where there is no noise."""

    mu: float

    def max_tpr(self, fpr: float) -> float:
        """Return Φ(Φ⁻¹(FPR) + μ): Dong, Roth and Su (2022), equation 6."""
        return float(ndtr(ndtri(fpr) + self.mu)) if math.isfinite(self.mu) else 1.0


@dataclass(frozen=True, eq=False)
class Curve:
    """Straight lines between points (P,), both coordinates rising; level before the first and after the last."""

    fpr: Array
    tpr: Array

    def max_tpr(self, fpr: float) -> float:
        """Interpolate between the points."""
        return float(np.interp(fpr, self.fpr, self.tpr))

    @classmethod
    def of(cls, losses: Losses, interval: float) -> Curve:
        """Return the curve of the most powerful tests (Neyman and Pearson) between the two distributions of a loss.

        They call outputs a participant's in falling order of their loss, those with an infinite one first.
        """
        held = losses.mass > 0
        loss = interval * np.arange(losses.first, losses.first + len(losses.mass))[held][::-1]
        tpr = losses.lost + np.cumsum(losses.mass[held][::-1])
        # Limit e^-loss far below any loss that matters: it would magnify rounding errors of the FFT.
        fpr = np.cumsum(losses.mass[held][::-1] * np.exp(-np.maximum(loss, -700.0)))
        return cls(np.concatenate([[0.0], np.minimum(fpr, 1.0)]), np.concatenate([[losses.lost], np.minimum(tpr, 1.0)]))


def attack_trade_off(c: Composition, delta: float) -> TradeOff:
    """Return the curve of an attack that tells participants from others.

    Args:
        delta: that of the reported ε; rates far below it are resolved poorly, with a TPR that is too large.
    """
    return _of(c, delta, 0)


def both_trade_offs(c: Composition, delta: float) -> tuple[TradeOff, TradeOff]:
    """Return the curve of `attack_trade_off`, and that of an attack that tells others from participants."""
    return _of(c, delta, 0), _of(c, delta, 1)


def max_tpr(ledger: Ledger, fpr: float, delta: float) -> float:
    """Return the largest TPR at `fpr` of any attack on the ledger's run, for one unit.

    Raises:
        UserError: as `epsilon`.
    """
    c = composition_of(ledger)
    always = Gaussian(c.mu_if_always_drawn).max_tpr(fpr)
    return min(always, attack_trade_off(c, delta).max_tpr(fpr))


def gaussian_mu(ledger: Ledger, delta: float) -> float:
    """Return μ of Gaussian differential privacy: the smallest whose mechanism permits all that the ledger permits.

    Exact without Poisson samples; with them, at FPR and 1 - TPR of at least 1e-3, or δ if that is smaller.

    Raises:
        UserError: as `epsilon`.
    """
    c = composition_of(ledger)
    if not c.sampled:
        return c.mu
    least = min(delta, _MIN_RATE)
    fpr = ndtr(np.linspace(ndtri(least), -ndtri(least), 400))
    tpr = np.array([[curve.max_tpr(x) for x in fpr] for curve in both_trade_offs(c, delta)])
    if tpr[:, 0].max() >= 1 - least:  # a TPR of 1 does not show how much larger μ is
        return c.mu_if_always_drawn
    mu = (ndtri(np.minimum(tpr, 1 - least)) - ndtri(fpr)).max()
    return min(float(mu), c.mu_if_always_drawn)


def _of(c: Composition, delta: float, which: Literal[0, 1]) -> TradeOff:
    found = _losses(c, delta) if c.sampled and math.isfinite(c.mu_if_always_drawn) else None
    if found is None:
        return Gaussian(c.mu_if_always_drawn)
    pair, interval = found
    return Curve.of(pair[which], interval)


@lru_cache(maxsize=4)  # callers ask for one run at several rates
def _losses(c: Composition, delta: float) -> tuple[Pair, float] | None:
    near = quick_epsilon(c, delta)
    return pld_losses(c, delta, near) if near > 0 else None
