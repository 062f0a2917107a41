"""The choice of one point of a front within limits, and the configuration that retrains it."""

from __future__ import annotations

import math

from edp.spec import UserError
from sweeps.results.confirmed import new_seeds
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import recommended
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.names import short
from trainables.config import TrialSpec


def choose(sweep: Sweep, limits: dict[str, float]) -> tuple[Point, str]:
    """Return the recommended point within `limits` (metric name to largest value) and the reason.

    Where no point has a guarantee, the rule is applied without that condition, and the reason says so.

    Raises:
        UserError: if no point fits, with the front's best value for each limit.
    """
    front = pareto_front(sweep.trials(), sweep.recipe.search.objectives)
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    found = recommended(sweep, limits)
    if (point := found.point or found.instead) is None:
        figures = [point.metrics | new_seeds(sweep, point) for point in front]
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(found.get(name, math.inf) for found in figures):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
    return point, found.why


def named_point(sweep: Sweep, name: str) -> Point:
    """Return the point of this name, on the front or not: `7` is the last epoch of trial 7, `7@3` its third.

    Raises:
        UserError: if there is none, with names of points that exist.
    """
    known = {
        f"{point.trial}@{point.epoch}": point
        for trial in sweep.trials()
        if trial.state in ("complete", "stopped")
        for point in trial.points
    }
    known |= {point.name: point for point in known.values()}
    if name not in known:
        front = pareto_front(sweep.trials(), sweep.recipe.search.objectives)
        there = f"the front: {', '.join(point.name for point in front[:8])}" if front else "no trial is complete yet"
        raise UserError(
            f"point = {short(name)}: sweep {sweep.name} has no model of this name; allowed: a trial's number, with "
            f"@epoch for a kept epoch before its last ({there})"
        )
    return known[name]


def picked_spec(point: Point) -> TrialSpec:
    """Return the configuration that retrains `point`: its trial's, for as many epochs as the point had."""
    spec = point.spec
    planned, shorter = spec.training, {"epochs": point.epoch}
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        shorter["decay_epochs"] = planned.decay_epochs or planned.epochs
    return spec.model_copy(update={"training": planned.model_copy(update=shorter)})
