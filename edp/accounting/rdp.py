"""Rényi accounting: Mironov, Talwar & Zhang (2019) for sampled steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, compute_epsilon
from numpy.typing import NDArray
from scipy.special import gammaln

from edp.accounting.composition import Composition

Array = NDArray[np.float64]

# The library's own orders, and some close to 1, which are the best ones for a large ε. Its conversion refuses orders
# below 1.01.
ORDERS = (
    *(1 + x / 100 for x in range(2, 10)),
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    *(128, 256, 512, 1024),
)
_IS_WHOLE = np.array([order == int(order) for order in ORDERS])
_WHOLE = np.array(ORDERS)[_IS_WHOLE]
# The library's divergences of orders that are not whole have no digits left below this: rounding may make them 0 or
# negative, which would count as no privacy loss. They are replaced by infinity.
_ROUNDING = 1e-10

# The terms k = 2..α of the sums for all whole orders α, one after the other, and the start of each sum.
_K = np.concatenate([np.arange(2, order + 1) for order in _WHOLE])
_ALPHA = np.repeat(_WHOLE, _WHOLE.astype(int) - 1)
_BEGIN = np.flatnonzero(_K == 2)
_LOG_BINOMIAL = gammaln(_ALPHA + 1) - gammaln(_K + 1) - gammaln(_ALPHA - _K + 1)

# The library warns of every order whose series does not converge, and leaves it out, which keeps the bound valid.
logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in record.getMessage())


def rdp_epsilon(c: Composition, delta: float) -> float:
    """Return an upper bound of ε at `delta`; good from z of about 1 upwards, poor for little noise.

    Takes up to a fifth of a second a noise level.
    """
    return _epsilon(c, delta, np.array(ORDERS), _divergence_of_step)


def quick_rdp_epsilon(c: Composition, delta: float) -> float:
    """Return the same bound from whole orders alone, in 1e-4 seconds a noise level; poor also for a large ε."""
    return _epsilon(c, delta, _WHOLE, _divergence_of_whole_orders)


def _epsilon(c: Composition, delta: float, orders: Array, of_one_step: Callable[[float, float], Array]) -> float:
    c = c.of_single_units()
    divergence = orders * (c.mu**2 / 2)
    for s in c.sampled:
        divergence = divergence + s.steps * of_one_step(s.rate, s.z)
    return float(compute_epsilon(orders.tolist(), divergence.tolist(), delta)[0])


@lru_cache(maxsize=4096)
def _divergence_of_step(rate: float, z: float) -> Array:
    """Return the Rényi divergence of one step at each of ORDERS."""
    accountant = RdpAccountant([order for order in ORDERS if order != int(order)])
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z)))
    found = np.empty(len(ORDERS))
    found[_IS_WHOLE] = _divergence_of_whole_orders(rate, z)
    found[~_IS_WHOLE] = np.where(accountant.rdp > _ROUNDING, accountant.rdp, math.inf)
    return found


@lru_cache(maxsize=4096)
def _divergence_of_whole_orders(rate: float, z: float) -> Array:
    """Return `ln(Σ_k C(α,k)·(1-q)^(α-k)·q^k·e^((k²-k)/2z²)) / (α-1)` for each whole order α.

    Without the exponential the sum is 1. Summing the excess over 1 keeps all digits of a tiny divergence.
    """
    exponent = (_K * _K - _K) / (2 * z * z)
    with np.errstate(divide="ignore"):  # noise so large that the exponent underflows
        log_excess = exponent + np.log(-np.expm1(-exponent))
    terms = _LOG_BINOMIAL + _K * math.log(rate) + (_ALPHA - _K) * math.log1p(-rate) + log_excess
    return np.logaddexp(0.0, np.logaddexp.reduceat(terms, _BEGIN)) / (_WHOLE - 1)
