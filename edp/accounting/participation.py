"""Revealed participation: the bound for little noise, where everybody sees anyhow which steps held the unit.

Tell the attacker how many of the steps of each noise level drew the unit, `K_j ~ Bin(n_j, q_j)`. Given these
numbers, the run is one Gaussian mechanism; the tally does not depend on the unit's data, and joint convexity
of the hockey-stick divergence gives `δ(ε) <= E[δ_Gauss(ε; √(μ² + Σ_j K_j/z_j²))]`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from edp.accounting.composition import Composition
from edp.accounting.gaussian import gaussian_delta, gaussian_epsilon

_GRID = 1 << 15
_LARGEST_GRID = 1 << 21
# Share of delta that may be spent on what the grid does not hold.
_TAIL = 1e-9


def participation_epsilon(c: Composition, delta: float) -> float:
    """An upper bound of ε at `delta`; within a thousandth of the truth for z below about 1e-2, loose for z
    near 1.

    Infinite where it does not apply: so many participations that the grid would grow past two million points.
    """
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
    """Distribution of `Σ_j K_j/z_j²` in units of `largest²`, each 1/z² rounded up to the grid: (values,
    probabilities).

    All but `tail` of its mass lies on the grid. None if the grid would be too large.
    """
    steps = np.array([s.steps for s in c.sampled])
    rate = np.array([s.rate for s in c.sampled])
    weight = np.array([(1 / s.z / largest) ** 2 for s in c.sampled])
    # The largest weight is a multiple of the gap, hence exact: with one noise level nothing is rounded.
    per_unit = max(1, int(_GRID / (_reach(steps, rate, weight, tail) + 1)))
    if len(set(weight)) == 1:
        per_unit = 1
    cells = np.maximum(1, np.ceil(weight * per_unit - 1e-9)).astype(np.int64)
    size = int(_reach(steps, rate, cells.astype(np.float64), tail)) + 2
    if size > _LARGEST_GRID:
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
    """A value that `Σ weight·Bin(steps, rate)` exceeds with a probability of at most `tail` (Bernstein's
    inequality).
    """
    mean = float(np.sum(steps * rate * weight))
    variance = float(np.sum(steps * rate * (1 - rate) * weight**2))
    nats = -math.log(tail)
    third = float(weight.max()) * nats / 3
    bound = mean + third + math.sqrt(third**2 + 2 * variance * nats)
    return min(bound, float(np.sum(steps * weight)))
