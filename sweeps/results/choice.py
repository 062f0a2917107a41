"""One point of a front, chosen within limits, and the configuration that trains it again."""

from __future__ import annotations

import math

from edp.spec import UserError
from sweeps.recipes.recipe import Recipe
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import recommended
from sweeps.state.records import Point
from sweeps.state.sweep import Sweep
from trainables.spec import TrialSpec


def choose(sweep: Sweep, limits: dict[str, float]) -> tuple[Point, str]:
    """The recommended point within `limits` (metric name to largest value), and why it is that one.

    Where none has a guarantee, it is what the rule comes to without that condition, and the sentence says so.

    Raises:
        UserError: when none fits, with the best value that there is for each limit.
    """
    front = pareto_front(sweep.trials(), sweep.recipe.search.objectives)
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    found = recommended(sweep, limits)
    if (point := found.point or found.instead) is None:
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(p.metrics.get(name, math.inf) for p in front):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
    return point, found.why


def picked_spec(recipe: Recipe, point: Point) -> TrialSpec:
    """What trains `point` again: its trial's configuration, for as many epochs as the point had."""
    params = {**point.params, "training.epochs": point.epoch}
    planned = recipe.trial(point.params).training
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        params["training.decay_epochs"] = planned.decay_epochs or planned.epochs
    return recipe.trial(params)
