"""The noise, or the number of epochs, that a target ε allows: ε is known before a run starts, so it can be
solved for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import TypedDict, Unpack

from scipy.optimize import brentq

from edp.accounting.epsilon import epsilon
from edp.accounting.planned import planned_ledger
from edp.spec import EDPSpec, UserError

# The arithmetic carries 1/z² up to 1e300. A fast decay over many epochs needs the room: e^(-τt) falls to 1e-22.
_LEAST_Z0, _MOST_Z0 = 1e-140, 1e140


class Schedule(TypedDict, total=False):
    """What `planned_ledger` needs besides the spec and the epochs."""

    micro_batches: int
    steps_per_epoch: int
    rate: float
    single_example: bool
    max_alpha: float
    alpha_z: float


def z0_for_epsilon(
    target: float, spec: EDPSpec, *, epochs: int, delta: float | None = None, **schedule: Unpack[Schedule]
) -> float:
    """The least noise multiplier z0 with which a run of `spec` costs `target`; its own is ignored.

    The run's ε lies at most 1e-4 below the target and never above. For Poisson sampling ε has steps of up to
    a thousandth where its discretisation changes: a target within such a step gets the ε below.

    Examples:
        >>> run = {"epochs": 30, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> z0 = z0_for_epsilon(8, EDPSpec(), delta=5e-4, **run)
        >>> round(z0, 2)
        5.47
        >>> 8 - 1e-4 < epsilon(planned_ledger(EDPSpec(z0=z0), **run), 5e-4) <= 8
        True

    Args:
        target: ε, positive and finite.
        delta: `spec.delta` unless given.
        schedule: as for `planned_ledger`.

    Raises:
        UserError: if no z0 gives that ε, with the reason.
    """
    if not (0 < target < math.inf):
        raise UserError(f"target epsilon = {target:g} is not allowed: it must be positive and finite")
    if epochs < 1:
        raise UserError(f"epochs = {epochs} is not allowed: a run without epochs costs nothing at any z0")
    _refuse_what_noise_cannot_help(spec)
    at = spec.delta if delta is None else delta
    _refuse_where_the_count_costs_more(target, spec, at, epochs, schedule)

    def cost(z0: float) -> float:
        return epsilon(planned_ledger(spec.model_copy(update={"z0": z0}), epochs=epochs, **schedule), at)

    return least_noise(cost, target)


def least_noise(cost_of: Callable[[float], float], target: float) -> float:
    """The least noise multiplier whose cost is at most `target`, and at most 1e-4 below it.

    Args:
        cost_of: ε at a noise multiplier; falls as that grows.
        target: ε, positive and finite.

    Raises:
        UserError: if none costs that.
    """

    @cache  # for Poisson sampling one takes a second
    def cost(log_z0: float) -> float:
        return cost_of(math.exp(log_z0))

    low, high = _bracket(cost, target)

    def excess(log_z0: float) -> float:
        # Logarithms make the curve nearly straight; an ε of 0 or infinity is kept finite.
        return math.log(min(max(cost(log_z0), target * 1e-6), sys.float_info.max)) - math.log(target)

    # ε changes at most like 1/z², so this leaves it within a millionth.
    log_z0 = float(brentq(excess, low, high, xtol=min(1e-7, 1e-6 / target), rtol=1e-13))
    nudge = 1e-12
    while cost(log_z0) > target:
        log_z0, nudge = log_z0 + nudge, 2 * nudge
    return math.exp(log_z0)


def _refuse_what_noise_cannot_help(spec: EDPSpec) -> None:
    if spec.alpha == "paper":
        raise UserError(
            "alpha = paper has an infinite epsilon whatever the noise, since its scales are read off the "
            "private data; use fixed, public or private"
        )
    if spec.reproducible_noise is not None:
        raise UserError(
            f"reproducible_noise = {spec.reproducible_noise} has an infinite epsilon whatever the noise, "
            "since it can be replayed; leave it out"
        )


def _refuse_where_the_count_costs_more(
    target: float, spec: EDPSpec, delta: float, epochs: int, schedule: Schedule
) -> None:
    """No noise on the gradients makes up for what `clip = quantile` spends on its count."""
    if spec.clip != "quantile":
        return
    nothing_else = spec.model_copy(update={"z0": _MOST_Z0, "decay": "none", "tau": 0.0, "alpha": "fixed"})
    count = epsilon(planned_ledger(nothing_else, epochs=epochs, **schedule), delta)
    if count > target:
        raise UserError(
            f"target epsilon = {target:g} is out of reach with clip = quantile: counting how many gradients are within "
            f"the clip costs {count:.4g} alone; allowed: clip fixed or automatic, or fewer epochs"
        )


def _bracket(cost: Callable[[float], float], target: float) -> tuple[float, float]:
    """Logarithms of a z0 that costs more than `target` and of one that costs at most that."""
    low = high = 0.0
    step = math.log(4)
    while cost(low) <= target:
        if low == math.log(_LEAST_Z0):
            raise UserError(f"target epsilon = {target:g} is out of reach: z0 = {_LEAST_Z0:g} costs less")
        high, low, step = low, max(low - step, math.log(_LEAST_Z0)), 2 * step
    while cost(high) > target:
        if high == math.log(_MOST_Z0):
            raise UserError(
                f"target epsilon = {target:g} is out of reach: z0 = {_MOST_Z0:g} costs more, because of what "
                "the decay leaves of the noise, of the private estimate of the layer scales or of the count that moves "
                "the clip"
            )
        low, high, step = high, min(high + step, math.log(_MOST_Z0)), 2 * step
    return low, high
