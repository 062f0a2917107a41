"""The Pareto front of a sweep, and what its pictures say of it."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.recipes.parts import Objective, objective_values
from sweeps.recipes.space import SHAPE
from sweeps.state.records import Point, TrialRecord
from trainables.records.pareto import non_dominated
from trainables.spec import TrialSpec


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


def clip_words(spec: TrialSpec) -> str:
    """What a configuration clips, in words: `one clip an utterance`, `8 clips a step`; `no clip` without privacy."""
    if spec.training.method == "sgd":
        return "no clip"
    if spec.training.method == "dpsgd":
        return f"one clip {'a user' if spec.edp.unit == 'user' else 'an utterance'}"
    clips = spec.training.micro_batches
    return f"{clips} clip{'s' * (clips > 1)} a step"


def mechanisms(front: Sequence[Point]) -> dict[str, str]:
    """Where a front's points differ in what they clip: the first point's name of each kind, and its words."""
    of_shape: dict[tuple[str, ...], str] = {}  # a spec takes a millisecond, and a front may have hundreds of points
    first: dict[str, str] = {}
    for point in front:
        shape = tuple(str(point.params.get(name)) for name in SHAPE)
        if shape not in of_shape:
            of_shape[shape] = clip_words(point.spec)
        first.setdefault(of_shape[shape], point.name)
    return {name: words for words, name in first.items()} if len(first) > 1 else {}
