"""The noise that a target ε needs: ε is known before a run starts, so it can be solved for."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import TypedDict, Unpack

from scipy.optimize import brentq

from edp.accounting.epsilon import epsilon
from edp.ledger import planned_ledger
from edp.rounding import rounded_up
from edp.spec import EDPSpec, UserError

# Floats hold 1/z² up to 1e300. A fast decay over many epochs needs that range: e^(-τt) falls to 1e-22.
_MIN_Z0, _MAX_Z0 = 1e-140, 1e140


class Schedule(TypedDict, total=False):
    """The arguments of `planned_ledger` besides the spec and the epochs."""

    micro_batches: int
    steps_per_epoch: int
    rate: float
    single_example: bool
    max_alpha: float
    alpha_z: float


def noise_multiplier_for_epsilon(
    target: float, spec: EDPSpec, *, epochs: int, delta: float | None = None, **schedule: Unpack[Schedule]
) -> float:
    """Return the smallest noise multiplier z0 with which a run of `spec` costs `target`; ignore the spec's own.

    The run's ε lies at most 1e-4 below the target and never above. For Poisson sampling ε has steps of up to a
    thousandth where its discretisation changes: a target within such a step gets the ε below.

    Examples:
        >>> run = {"epochs": 30, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> z0 = noise_multiplier_for_epsilon(8, EDPSpec(), delta=5e-4, **run)
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
    _refuse_infinite_epsilon(spec)
    at = spec.delta if delta is None else delta
    _refuse_costly_count(target, spec, at, epochs, schedule)

    def cost(z0: float) -> float:
        return epsilon(planned_ledger(spec.model_copy(update={"z0": z0}), epochs=epochs, **schedule), at)

    return calibrate_noise(cost, target)


def calibrate_noise(cost_of: Callable[[float], float], target: float) -> float:
    """Return the smallest noise multiplier whose cost is at most `target`, and at most 1e-4 below it.

    The cost is a ten-millionth below the target, so that a run whose mechanisms are added up in another order does not
    end above the target either: rounded up, an ε of 8 + 1e-12 would read 8.01.

    Args:
        cost_of: ε of a noise multiplier, a decreasing function.
        target: ε, positive and finite.

    Raises:
        UserError: if no noise multiplier has that cost.
    """

    @cache  # one evaluation takes a second with Poisson sampling
    def cost(log_z0: float) -> float:
        return cost_of(math.exp(log_z0))

    aim = target - min(1e-7 * target, 5e-5)
    low, high = _bracket(cost, aim)

    def excess(log_z0: float) -> float:
        # Logarithms make the curve nearly straight; the limits keep them finite for an ε of 0 or infinity.
        return math.log(min(max(cost(log_z0), target * 1e-6), sys.float_info.max)) - math.log(aim)

    # ε changes at most like 1/z², so this leaves it within a millionth.
    log_z0 = float(brentq(excess, low, high, xtol=min(1e-7, 1e-6 / target), rtol=1e-13))
    nudge = 1e-12
    while cost(log_z0) > aim:
        log_z0, nudge = log_z0 + nudge, 2 * nudge
    return math.exp(log_z0)


def _refuse_infinite_epsilon(spec: EDPSpec) -> None:
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


def _refuse_costly_count(target: float, spec: EDPSpec, delta: float, epochs: int, schedule: Schedule) -> None:
    """Raise if the count of `clip = quantile` alone costs more than `target`, whatever the noise on the gradients."""
    if spec.clip != "quantile":
        return
    nothing_else = spec.model_copy(update={"z0": _MAX_Z0, "decay": "none", "tau": 0.0, "alpha": "fixed"})
    count = epsilon(planned_ledger(nothing_else, epochs=epochs, **schedule), delta)
    if count > target:
        raise UserError(
            f"target epsilon = {target:g} is out of reach with clip = quantile: counting how many gradients are within "
            f"the clip costs {rounded_up(count, 4):.4g} alone; allowed: clip fixed or automatic, or fewer epochs"
        )


def _bracket(cost: Callable[[float], float], target: float) -> tuple[float, float]:
    """Return the logarithms of a z0 that costs more than `target`, and of one that costs at most `target`."""
    low = high = 0.0
    step = math.log(4)
    while cost(low) <= target:
        if low == math.log(_MIN_Z0):
            raise UserError(f"target epsilon = {target:g} is out of reach: z0 = {_MIN_Z0:g} costs less")
        high, low, step = low, max(low - step, math.log(_MIN_Z0)), 2 * step
    while cost(high) > target:
        if high == math.log(_MAX_Z0):
            raise UserError(
                f"target epsilon = {target:g} is out of reach: z0 = {_MAX_Z0:g} costs more, because the "
                "decay leaves too little noise, or because of the private layer scales or the count that moves the clip"
            )
        low, high, step = high, min(high + step, math.log(_MAX_Z0)), 2 * step
    return low, high
