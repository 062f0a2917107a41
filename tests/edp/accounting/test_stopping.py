"""A run that is ended by a rule on its outputs: its ε is that of the plan, not that of the steps until then.

The run releases T Gaussian mechanisms, N(0, 1) or N(1/z, 1) each, one after the other. The ε of the first t steps at δ
is ε_t, and ε_T = 8. Whoever may stop it chooses the time with the largest chance of an output that ε_t does not allow.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec

GRID = np.linspace(-12.0, 20.0, 3201)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def plan(steps: int, z: float) -> Ledger:
    return planned_ledger(
        EDPSpec(z0=z), epochs=steps, micro_batches=1, steps_per_epoch=1, rate=1.0, single_example=True
    )


def worst_rule(mu: float, stated: list[float]) -> tuple[float, list[float]]:
    """Return the largest P(S) - e^ε Q(S) of outputs of a stopped run, and the log-ratios from which on to stop.

    Backward induction over l, the log-ratio of P to Q. A step adds a draw of N(μ²/2, μ²) under P. To stop at l after t
    steps is worth 1 - e^(ε_t - l) under P, or nothing.
    """
    value, thresholds = np.zeros_like(GRID), []
    for at in reversed(stated):
        now = np.maximum(0.0, -np.expm1(np.minimum(at - GRID, 0.0)))
        thresholds.append(float(GRID[(now > 0) & (now >= value)].min(initial=math.inf)))
        value = np.maximum(now, value)
        steps = GRID[:, None] + mu * mu / 2 + mu * NODES
        value = np.interp(steps, GRID, value) @ (WEIGHTS / WEIGHTS.sum())
    return float(np.interp(0.0, GRID, value)), thresholds[::-1]


@pytest.mark.parametrize(("steps", "delta", "times"), [(15, 5e-4, 5.0), (60, 5e-4, 7.2), (60, 5e-5, 9.2)])
@pytest.mark.slow
def test_the_epsilon_of_executed_steps_is_no_guarantee_of_a_run_that_is_stopped_and_that_of_the_plan_is(
    steps: int, delta: float, times: float
) -> None:
    of = {"micro_batches": 1, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}
    z = noise_multiplier_for_epsilon(8.0, EDPSpec(z0=1.0, delta=delta), epochs=steps, **of)
    executed = [epsilon(plan(t, z), delta) for t in range(1, steps + 1)]
    worst, thresholds = worst_rule(1 / z, executed)
    assert worst == pytest.approx(times * delta, rel=0.05)
    # The same rule, played: each run that was stopped counts at the ε of its steps, and then at that of its plan.
    rng = np.random.default_rng(0)
    ratios = (rng.normal(1 / z, 1.0, (100_000, steps)) / z - 1 / z**2 / 2).cumsum(1)
    stopped = ratios >= thresholds
    time = np.where(stopped.any(1), stopped.argmax(1), steps - 1)
    at = ratios[np.arange(len(ratios)), time]
    of_executed, of_plan = (
        np.maximum(0.0, -np.expm1(np.minimum(stated - at, 0.0))) for stated in (np.array(executed)[time], executed[-1])
    )
    assert of_executed.mean() == pytest.approx(worst, abs=5 * of_executed.std() / math.sqrt(len(ratios)))
    assert of_plan.mean() < delta
    # No rule does better against the ε of the plan than never to stop.
    most, _ = worst_rule(1 / z, [executed[-1]] * steps)
    assert most == pytest.approx(delta, rel=0.01)


def test_a_stopped_run_costs_its_plan_and_what_was_lost_besides() -> None:
    whole = plan(5, 2.0)
    stopped = whole.until(2).completed(whole)
    assert epsilon(stopped, 5e-4) == epsilon(whole, 5e-4)
    assert stopped.executed == whole.until(2)
    partly = (
        Ledger()
        .record(0, whole.entries[0].mechanism)
        .completed(
            planned_ledger(
                EDPSpec(z0=2.0), epochs=1, micro_batches=1, steps_per_epoch=3, rate=1 / 3, single_example=True
            )
        )
    )
    assert [(entry.epoch, entry.steps) for entry in partly.counted] == [(0, 1), (0, 2)]
    # A death throws away what was due next, not the rest of the plan.
    written = whole.until(3).completed(whole)
    resumed = whole.until(2).after_loss(written).completed(whole)
    assert [[entry.epoch for entry in one.entries] for one in resumed.discarded] == [[2]]
    assert epsilon(resumed, 5e-4) == pytest.approx(epsilon(plan(6, 2.0), 5e-4))
