"""One point of a front, chosen within limits, and the configuration that trains it again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edp.spec import UserError
from sweeps.recipes.parts import Objective, objective_values
from sweeps.recipes.recipe import Recipe
from sweeps.state.records import Point
from trainables.spec import TrialSpec


def choose(front: Sequence[Point], objectives: tuple[Objective, ...], limits: dict[str, float]) -> Point:
    """The point within `limits` (metric name to largest value) that is closest to the ideal point.

    Each objective is scaled to the front's range, 0 being its best; the distance is Euclidean.

    Raises:
        UserError: when none fits, with the best value that there is for each limit.
    """
    if not front:
        raise UserError("the sweep has no complete trial, so there is nothing to pick; allowed: a sweep with a front")
    fitting = [p for p in front if all(p.metrics.get(name, math.inf) <= most for name, most in limits.items())]
    if not fitting:
        best = ", ".join(
            f"{name} <= {most:g} (the front's lowest: {min(p.metrics.get(name, math.inf) for p in front):.4g})"
            for name, most in limits.items()
        )
        raise UserError(f"nothing on the front fits {best}; allowed: wider limits")
    values = [objective_values(objectives, p.metrics) for p in front]
    low = [min(column) for column in zip(*values, strict=True)]
    high = [max(column) for column in zip(*values, strict=True)]

    def distance(point: Point) -> float:
        place = objective_values(objectives, point.metrics)
        return math.hypot(*((v - a) / (b - a) if b > a else 0.0 for v, a, b in zip(place, low, high, strict=True)))

    return min(fitting, key=distance)


def picked_spec(recipe: Recipe, point: Point) -> TrialSpec:
    """What trains `point` again: its trial's configuration, for as many epochs as the point had."""
    params = {**point.params, "training.epochs": point.epoch}
    planned = recipe.trial(point.params).training
    if planned.learning_rate_decay != "none" and point.epoch < planned.epochs:
        params["training.decay_epochs"] = planned.decay_epochs or planned.epochs
    return recipe.trial(params)
