"""The Pareto front of a sweep, and the words on it that pictures share."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.config.parts import Objective, objective_values
from sweeps.config.space import SHAPE
from sweeps.store.records import Point, TrialRecord
from trainables.config import TrialSpec
from trainables.records.pareto import non_dominated


def pareto_front(trials: Sequence[TrialRecord], objectives: tuple[Objective, ...]) -> list[Point]:
    """Return the non-dominated kept epochs of all trials that completed or were stopped early.

    Returns:
        Points sorted by the first objective, then the others, then trial and epoch.
    """
    points = [point for trial in trials if trial.state in ("complete", "stopped") for point in trial.points]
    values = [objective_values(objectives, point.metrics) for point in points]
    front = [(values[i], points[i]) for i in non_dominated(values)]
    return [point for _, point in sorted(front, key=lambda item: (item[0], item[1].trial, item[1].epoch))]


def epsilon_varies(points: Sequence[Point]) -> bool:
    """Return True if the points' ε differ by more than the accuracy to which z0 is solved for one target."""
    found = [objective_values(("log10_epsilon",), point.metrics)[0] for point in points]
    return bool(found) and max(found) - min(found) > 0.01


def clip_words(spec: TrialSpec) -> str:
    """Return a configuration's clipping in words: `one clip an utterance`, `8 clips a step`, `no clip`."""
    if spec.training.method == "sgd":
        return "no clip"
    if spec.training.method == "dpsgd":
        return f"one clip {'a user' if spec.edp.unit == 'user' else 'an utterance'}"
    clips = spec.training.micro_batches
    return f"{clips} clip{'s' * (clips > 1)} a step"


def mechanisms(front: Sequence[Point]) -> dict[str, str]:
    """Map the first point of each clipping mode to its words; {} where the front has one mode only."""
    of_shape: dict[tuple[str, ...], str] = {}  # a spec takes a millisecond, and a front may have hundreds of points
    first: dict[str, str] = {}
    for point in front:
        shape = tuple(str(point.params.get(name)) for name in SHAPE)
        if shape not in of_shape:
            of_shape[shape] = clip_words(point.spec)
        first.setdefault(of_shape[shape], point.name)
    return {name: words for words, name in first.items()} if len(first) > 1 else {}
