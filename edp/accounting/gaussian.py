"""The Gaussian mechanism, exactly, and Poisson samples whose participation is revealed.

One Gaussian mechanism: Balle & Wang (2018), Theorem 8.

Revealed participation is the bound for little noise, where an attacker sees anyhow which steps held the unit. Tell
the attacker how many of the steps of each noise level drew the unit, `K_j ~ Bin(n_j, q_j)`. Given these numbers, the
run is one Gaussian mechanism; the tally does not depend on the unit's data, and joint convexity of the hockey-stick
divergence gives `δ(ε) <= E[δ_Gauss(ε; √(μ² + Σ_j K_j/z_j²))]`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from edp.accounting.composition import Composition

# Above this mu, the difference of two nearly equal numbers in the exact formula has lost its digits.
_MU_EXACT = 1e3
_ROUNDING = 1e-13
"""Relative error of the same difference's larger term for a small mu: that of `exp` at a logarithm of -700."""
_GRID = 1 << 15
_MAX_GRID = 1 << 21
# Share of delta that may be spent on what the grid does not hold.
_TAIL = 1e-9


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return ε of one Gaussian mechanism with sensitivity over noise std `mu`, at `delta`; many compose to `√Σ mu²`.

    Exact up to mu = 1e3. Beyond, an upper bound from the first term of the formula alone: `μ²/2 + μ·Φ⁻¹(1-δ)`.
    """
    # If delta covers the total variation distance of the two Gaussians, ε is 0.
    if math.erf(mu / math.sqrt(8)) <= delta:
        return 0.0
    if mu > _MU_EXACT:
        return max(0.0, mu * (mu / 2 - float(ndtri(delta))))

    def excess(epsilon: float) -> float:
        above, below = float(log_ndtr(mu / 2 - epsilon / mu)), epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
        return above + math.log(-math.expm1(below - above)) - math.log(delta) if below < above else -math.inf

    # dp_accounting solves the same equation in fifty times the time; a curve has thousands of epochs.
    most = mu * (mu / 2 - float(ndtri(delta)))
    if excess(0.0) <= 0:  # mu is so small that both terms agree in all digits: the first alone is an upper bound
        return most
    return float(brentq(lambda epsilon: max(excess(epsilon), -1e300), 0.0, max(most, mu * mu), xtol=1e-12, rtol=1e-14))


def gaussian_delta(epsilon: float, mu: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return δ at `epsilon` of Gaussian mechanisms with sensitivities over noise std `mu` > 0, any shape.

    Never too small: beyond mu = 1e3 the subtracted term is left out, and the possible rounding error is added.
    """
    above = ndtr(mu / 2 - epsilon / mu)
    below = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), 0.0))
    return np.asarray(above - np.where(mu > _MU_EXACT, 0.0, np.minimum(below, above)) + _ROUNDING * above)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the `mu` of the Gaussian mechanism that costs `epsilon` > 0 at `delta`; never too small."""

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


def participation_epsilon(c: Composition, delta: float) -> float:
    """Return an upper bound of ε at `delta`: within a thousandth of the truth for z below about 1e-2, loose near 1.

    Infinite if there are so many participations that the grid would grow past two million points.
    """
    c = c.of_single_units()
    if not c.sampled:
        return gaussian_epsilon(c.mu, delta)
    largest = max(1 / s.z for s in c.sampled)
    tally = _tally(c, largest, _TAIL * delta)
    if tally is None:
        return math.inf
    value, probability = tally
    mu = np.hypot(c.mu, largest * np.sqrt(value))
    held = (probability > _TAIL * delta / len(mu)) & (mu > 0)
    missing = 2 * _TAIL * delta
    mu, probability = mu[held], probability[held]

    def excess(epsilon: float) -> float:
        return float(probability @ gaussian_delta(epsilon, mu)) + missing - delta

    most = gaussian_epsilon(float(mu.max()), delta / 2) if len(mu) else 0.0
    if most == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, most, rtol=1e-12))


def _tally(c: Composition, largest: float, tail: float) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the distribution of `Σ_j K_j/z_j²` in units of `largest²`, as values and probabilities on a grid.

    Each 1/z² is rounded up to the grid, which holds all but `tail` of the mass. None if it would be too large.
    """
    steps = np.array([s.steps for s in c.sampled])
    rate = np.array([s.rate for s in c.sampled])
    weight = np.array([(1 / s.z / largest) ** 2 for s in c.sampled])
    # Make the largest weight a multiple of the gap, hence exact: with one noise level nothing is rounded.
    per_unit = max(1, int(_GRID / (_reach(steps, rate, weight, tail) + 1)))
    if len(set(weight)) == 1:
        per_unit = 1
    cells = np.maximum(1, np.ceil(weight * per_unit - 1e-9)).astype(np.int64)
    size = int(_reach(steps, rate, cells.astype(np.float64), tail)) + 2
    if size > _MAX_GRID:
        return None
    size = 1 << (size - 1).bit_length()
    angle = 2 * np.pi * np.arange(size // 2 + 1) / size
    log_modulus, phase = np.zeros_like(angle), np.zeros_like(angle)
    for n, q, cell in zip(steps, rate, cells, strict=True):
        real, imaginary = 1 - q + q * np.cos(cell * angle), q * np.sin(cell * angle)
        with np.errstate(divide="ignore"):  # a modulus of 0 has the logarithm -inf
            log_modulus += n * np.log(np.hypot(real, imaginary))
        phase -= n * np.arctan2(imaginary, real)
    probability = np.fft.irfft(np.exp(log_modulus) * np.exp(1j * phase), size)
    return np.arange(size) / per_unit, np.maximum(probability, 0.0)


def _reach(steps: NDArray[np.int64], rate: NDArray[np.float64], weight: NDArray[np.float64], tail: float) -> float:
    """Return a value that `Σ weight·Bin(steps, rate)` exceeds with probability `tail` at most (Bernstein)."""
    mean = float(np.sum(steps * rate * weight))
    variance = float(np.sum(steps * rate * (1 - rate) * weight**2))
    nats = -math.log(tail)
    third = float(weight.max()) * nats / 3
    bound = mean + third + math.sqrt(third**2 + 2 * variance * nats)
    return min(bound, float(np.sum(steps * weight)))
