"""The Pareto front of a sweep, and its pictures."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.recipes.parts import Objective, objective_values
from sweeps.state.records import Point, TrialRecord
from trainables.records.pareto import non_dominated


def pareto_front(trials: Sequence[TrialRecord], objectives: tuple[Objective, ...]) -> list[Point]:
    """The kept epochs, of all trials that ended well or were stopped early, that no other one dominates.

    Returns:
        By the first objective, then the others, then trial and epoch.
    """
    points = [point for trial in trials if trial.state in ("complete", "stopped") for point in trial.points]
    values = [objective_values(objectives, point.metrics) for point in points]
    front = [(values[i], points[i]) for i in non_dominated(values)]
    return [point for _, point in sorted(front, key=lambda item: (item[0], item[1].trial, item[1].epoch))]


def epsilon_varies(points: Sequence[Point]) -> bool:
    """Whether ε tells some of these apart: by more than what z0 is solved for to within of a fixed target."""
    found = [objective_values(("log10_epsilon",), point.metrics)[0] for point in points]
    return bool(found) and max(found) - min(found) > 0.01
