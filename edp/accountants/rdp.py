"""Rényi accounting: Mironov, Talwar & Zhang (2019) for sampled steps, through the library dp_accounting."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from edp.accountants.composition import Composition

# The library's own, and some close to 1, which are the best ones where ε is large. Below 1.01 its conversion
# refuses.
ORDERS = (
    *(1 + x / 100 for x in range(2, 10)),
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    *(128, 256, 512, 1024),
)
# Fractional orders take long: with many noise levels only those below 2 are worth it.
_FEW_ORDERS = tuple(order for order in ORDERS if order < 2 or order == int(order))
_MANY_LEVELS = 8


def rdp_epsilon(c: Composition, delta: float) -> float:
    """An upper bound of ε at `delta`, always cheap; good from z of about 1 upwards, poor for little noise."""
    orders = ORDERS if len(c.sampled) <= _MANY_LEVELS else _FEW_ORDERS
    divergence = np.array(orders) * (c.mu**2 / 2)
    for s in c.sampled:
        divergence = divergence + s.steps * np.array(_of_one_step(s.rate, s.z, orders))
    return float(compute_epsilon(orders, divergence, delta)[0])


def event_of(c: Composition) -> dp_event.DpEvent:
    """The composition in the library's words, for its own accountants."""
    events: list[dp_event.DpEvent] = [
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(s.rate, dp_event.GaussianDpEvent(s.z)), s.steps)
        for s in c.sampled
    ]
    if c.mu > 0:
        events.append(dp_event.GaussianDpEvent(1 / c.mu))
    return dp_event.ComposedDpEvent(events)


@lru_cache(maxsize=4096)
def _of_one_step(rate: float, z: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    """Rényi divergence at each of `orders`."""
    accountant = RdpAccountant(orders)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z)))
    return tuple(accountant.rdp)
