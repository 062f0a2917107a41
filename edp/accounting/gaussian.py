"""The Gaussian mechanism, exactly: Balle & Wang (2018), Theorem 8."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

# Above this mu, the difference of two nearly equal numbers in the exact formula has lost its digits.
_MU_EXACT = 1e3
_ROUNDING = 1e-13
"""Of the same difference for a small mu, over its larger term: `exp` of a logarithm of -700 is that far off."""


def gaussian_epsilon(mu: float, delta: float) -> float:
    """ε of one Gaussian mechanism with sensitivity over noise std `mu`, at `delta`; many compose to `√Σ mu²`.

    Exact up to mu = 1e3. Beyond, the first term of the formula alone, which is an upper bound: `μ²/2 +
    μ·Φ⁻¹(1-δ)`.
    """
    # Total variation distance of the two Gaussians: up to there, ε = 0 will do.
    if math.erf(mu / math.sqrt(8)) <= delta:
        return 0.0
    if mu > _MU_EXACT:
        return max(0.0, mu * (mu / 2 - float(ndtri(delta))))

    def excess(epsilon: float) -> float:
        above, below = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return above + math.log(-math.expm1(below - above)) - math.log(delta) if below < above else -math.inf

    # dp_accounting has the same equation, and takes fifty times as long: a curve has thousands of epochs.
    most = mu * (mu / 2 - float(ndtri(delta)))
    if excess(0.0) <= 0:  # of a mu whose terms differ in no digit; their first alone is an upper bound
        return most
    return float(brentq(lambda epsilon: max(excess(epsilon), -1e300), 0.0, max(most, mu * mu), xtol=1e-12, rtol=1e-14))


def gaussian_delta(epsilon: float, mu: NDArray[np.float64]) -> NDArray[np.float64]:
    """δ at `epsilon` of Gaussian mechanisms with sensitivities over noise std `mu` > 0, any shape.

    Never too small: beyond mu = 1e3 the term that is subtracted is left out, and what rounding may take is added.
    """
    above = ndtr(mu / 2 - epsilon / mu)
    below = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0))
    return np.asarray(above - np.where(mu > _MU_EXACT, 0.0, np.minimum(below, above)) + _ROUNDING * above)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The `mu` of the Gaussian mechanism that costs `epsilon` > 0 at `delta`; never too small."""

    def excess(log_mu: float) -> float:
        return gaussian_epsilon(math.exp(log_mu), delta) - epsilon

    low, high = -1.0, 1.0
    while excess(high) < 0:
        high += 1
    while excess(low) >= 0:
        low -= 1
    log_mu, nudge = float(brentq(excess, low, high, xtol=1e-14)), 1e-15
    while excess(log_mu) < 0:
        log_mu, nudge = log_mu + nudge, 2 * nudge
    return math.exp(log_mu)
