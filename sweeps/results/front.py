"""The Pareto front of a sweep, and its ties: pairs of points whose order is within the measurement's noise.

Both are by the figures of the validation split (`Point.selection_figures`), and no test figure has a part in them. SER,
MIA AUC and TPR are estimates with 95 % intervals (`ser_lower`, `ser_upper`, …). ε is computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeps.config.parts import Limited, Objective
from sweeps.config.space import SHAPE
from sweeps.store.records import Point, TrialRecord
from sweeps.text.columns import HOLLOW
from sweeps.text.figures import enumerated
from trainables.config import TrialSpec
from trainables.records.pareto import (
    GUESSING,
    Interval,
    Metrics,
    SelectionFigures,
    difference,
    dominates,
    interval_of,
    non_dominated,
    objective_value,
    objective_values,
)


def points_of(trials: Iterable[TrialRecord]) -> list[Point]:
    """Return the kept epochs of all trials that completed or were stopped early."""
    return [point for trial in trials if trial.state in ("complete", "stopped") for point in trial.points]


def pareto_front(
    trials: Sequence[TrialRecord], objectives: tuple[Objective, ...], limits: Mapping[Limited, float] | None = None
) -> list[Point]:
    """Return the non-dominated kept epochs of all trials that completed or were stopped early.

    Args:
        limits: the recipe's `search.limits`. If points are within all of them, they alone count.

    Returns:
        Points sorted by the first objective, then the others, then trial and epoch.
    """
    points = points_of(trials)
    points = [point for point in points if not over_limits(point.selection_figures, limits or {})] or points
    values = [objective_values(objectives, point.selection_figures) for point in points]
    front = [(values[i], points[i]) for i in non_dominated(values)]
    return [point for _, point in sorted(front, key=lambda item: (item[0], item[1].trial, item[1].epoch))]


def over_limits(figures: SelectionFigures, limits: Mapping[Any, float]) -> list[str]:
    """Return the names of the limits that a model's figures are over; a figure that is missing is over its limit."""
    return [name for name, most in limits.items() if not figures.get(name, math.inf) <= most]


def epsilon_varies(points: Sequence[Point]) -> bool:
    """Return True if the points' ε differ by more than the accuracy to which z0 is solved for one target."""
    found = [objective_value("log10_epsilon", point.selection_figures) for point in points]
    return bool(found) and max(found) - min(found) > 0.01


def gap(one: SelectionFigures, other: SelectionFigures, objective: str) -> Interval:
    """Return the 95 % interval of `one` minus `other` in an objective (`trainables.records.pareto.difference`)."""
    least = GUESSING.get(objective, -math.inf)  # of the ends too, as of the values

    def known(figures: SelectionFigures) -> tuple[float, Interval | None]:
        ends = figures.interval(objective)
        return objective_value(objective, figures), ends and (max(ends[0], least), max(ends[1], least))

    return difference(*known(one), *known(other))


def lead_is_noise(
    ahead: SelectionFigures,
    behind: SelectionFigures,
    objectives: tuple[Objective, ...],
    again: tuple[SelectionFigures, SelectionFigures] | None = None,
) -> bool:
    """Return True if `ahead` leads in some objective, and every lead is within noise.

    A lead is within noise if the 95 % interval of the difference reaches 0.

    Args:
        again: the figures of both whose difference is tested; None: `ahead` and `behind`.
    """
    values = zip(objectives, objective_values(objectives, ahead), objective_values(objectives, behind), strict=True)
    better = [name for name, a, b in values if a < b]
    one, other = again or (ahead, behind)
    return bool(better) and all(gap(one, other, name)[1] >= 0 for name in better)


def hollow(
    front: Sequence[Point], objectives: tuple[Objective, ...], again: Mapping[str, Metrics] | None = None
) -> set[str]:
    """Return the names of the front's points that leakage within its noise alone keeps there.

    Such a point is better than another one of the front in leakage alone, and its lead is noise.

    Args:
        again: as for `ties`.
    """
    figures = {p.name: SelectionFigures(p.metrics, (again or {}).get(p.name)) for p in front}
    others = tuple(name for name in objectives if not name.startswith("mia_"))
    values = [(p.name, p.selection_figures, objective_values(others, p.selection_figures)) for p in front]
    return {
        name
        for name, mine, at in values
        if any(
            all(a >= b for a, b in zip(at, there, strict=True))
            and lead_is_noise(mine, theirs, objectives, (figures[name], figures[other]))
            for other, theirs, there in values
        )
    }


def ties(
    trials: Sequence[TrialRecord],
    front: Sequence[Point],
    objectives: tuple[Objective, ...],
    again: Mapping[str, Metrics] | None = None,
) -> dict[str, list[str]]:
    """Return the points whose place on or off the front is within noise, and the front's points that each is tied with.

    The front is computed from estimates, so noise may decide which point of a pair is ahead:

    - A dominated point p is tied with a point q of the front that dominates it if q's lead is noise: p may be as good
      as q.
    - A point p of the front is tied with another one, q, if p's own lead over q is noise: q is ahead in some other
      objective, and p may truly be ahead in none.

    ε is exact. If it is an objective, a dominated point is never tied with a q of smaller ε, however close their SER
    and MIA AUC are. If it is none, as at a fixed target, it has no influence.

    Args:
        again: figures by a point's name (`sweeps.results.confirmed.comparable`). The front stays that of the sweep's
            own figures; a lead that these do not show is noise.

    Returns:
        Names of tied points by a point's name, both in order of trial and epoch. Points without a tie are left out.
    """
    on_front = {point.name for point in front}
    ordered, again = _in_order(front), again or {}
    fronts = np.array([objective_values(objectives, p.selection_figures) for p in ordered]).reshape(-1, len(objectives))
    points = _in_order(points_of(trials))
    figures = {p.name: SelectionFigures(p.metrics, again.get(p.name)) for p in points}
    found: dict[str, list[str]] = {}
    for point in points:
        if point.name in on_front:
            pairs = [(point, other) for other in ordered if other.name != point.name]
        else:
            # All at once, since a sweep of 10,000 points has millions of pairs.
            values = np.array(objective_values(objectives, point.selection_figures))
            leads = (fronts <= values).all(axis=1) & (fronts < values).any(axis=1)
            pairs = [(ordered[i], point) for i in np.flatnonzero(leads)]
        for ahead, behind in pairs:
            tested = figures[ahead.name], figures[behind.name]
            if lead_is_noise(ahead.selection_figures, behind.selection_figures, objectives, tested):
                other = behind if ahead is point else ahead
                found.setdefault(point.name, []).append(other.name)
    return found


@dataclass(frozen=True)
class Candidate:
    """A point with its place among all points of its sweep."""

    point: Point
    dominated_by: str | None
    """Name of a point of the front that is better in some objective and worse in none; None on the front."""
    hollow: bool = False
    """True if leakage within its noise alone keeps it on the front (`hollow`)."""
    tied_with: tuple[str, ...] = ()
    """Names of the front's points that it is tied with within noise (`ties`)."""

    @property
    def key(self) -> str:
        """The point's name, such as `2@3`."""
        return self.point.name

    @property
    def params(self) -> dict[str, Any]:
        """The searched settings."""
        return self.point.params

    @property
    def metrics(self) -> Metrics:
        """The metrics on the validation split (`valid_ser`, …) and on the test split (`ser`, …)."""
        return self.point.metrics

    @property
    def on_front(self) -> bool:
        """True if no other candidate dominates it."""
        return self.dominated_by is None

    def interval(self, key: str) -> Interval | None:
        """Return the 95 % interval of a metric; None if it has none."""
        return interval_of(self.metrics, key)

    @property
    def mark(self) -> str:
        """The sign before its name in a table of the front."""
        return HOLLOW if self.hollow else "~" if self.tied_with else ""

    @property
    def name(self) -> str:
        """The name in the page's words."""
        trial, epoch = self.point.trial, self.point.epoch
        return f"Trial {trial}" if self.point.last else f"Trial {trial}, epoch {epoch}"

    def value(self, key: str) -> Any:
        """Return a metric or a setting; NaN if it is missing. An ε of 0 counts as 1e-12, as in the search."""
        metrics = self.point.metrics
        if key in metrics:
            return max(metrics[key], 1e-12) if key.startswith("epsilon") else metrics[key]
        return self.point.epoch if key == "epoch" else self.point.params.get(key, math.nan)


def candidates(
    trials: Sequence[TrialRecord],
    front: Sequence[Point],
    objectives: tuple[Objective, ...],
    again: Mapping[str, Metrics] | None = None,
) -> dict[str, Candidate]:
    """Return every point with its place, by name: the front, its hollow points, the others; by the first objective."""
    every, tied, noisy = points_of(trials), ties(trials, front, objectives, again), hollow(front, objectives, again)
    values = {p.name: objective_values(objectives, p.selection_figures) for p in every}
    shown = sorted(front, key=lambda point: point.name in noisy)
    found = {p.name: Candidate(p, None, p.name in noisy, tuple(tied.get(p.name, ()))) for p in shown}
    others = [p for p in every if p.name not in found]
    for point in sorted(others, key=lambda p: values[p.name]):
        beaten_by = next((one.name for one in shown if dominates(values[one.name], values[point.name])), "")
        found[point.name] = Candidate(point, beaten_by, tied_with=tuple(tied.get(point.name, ())))
    return found


def tie_lines(found: Mapping[str, Candidate]) -> list[str]:
    """Return the ties in words. A pair whose points are each ahead in some objective gets one line."""
    tied = {one.key: one.tied_with for one in sorted(found.values(), key=_place) if one.tied_with}
    lines, order = [], list(tied)
    for i, (name, others) in enumerate(tied.items()):
        alike = [other for other in others if name in tied.get(other, ())]
        ahead = [other for other in others if other not in alike]
        said = enumerated([other for other in alike if other in order[i + 1 :]])
        if said:
            lines.append(f"Trial {name} differs from {said} by less than the measurement's noise.")
        if ahead:
            verb = "beats" if found[name].on_front else "is behind"
            lines.append(f"Trial {name} {verb} {enumerated(ahead)} by less than the measurement's noise.")
    return lines


def _place(one: Candidate) -> tuple[int, int]:
    return one.point.trial, one.point.epoch


def _in_order(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: (point.trial, point.epoch))


def clip_words(spec: TrialSpec) -> str:
    """Return a configuration's clipping in words: `per-utterance clipping`, `8 averages clipped a step`, `no clip`."""
    if spec.training.method == "sgd":
        return "no clip"
    if spec.training.method == "dpsgd":
        return f"per-{'user' if spec.edp.unit == 'user' else 'utterance'} clipping"
    clips = spec.training.micro_batches
    return f"{clips} average{'s' * (clips > 1)} clipped a step"


def mechanisms(front: Sequence[Point]) -> dict[str, str]:
    """Map the first point of each clipping mode to its words; {} if the front has one mode only."""
    of_shape: dict[tuple[str, ...], Point] = {}  # a spec takes a millisecond, and a front has hundreds of points
    for point in front:
        of_shape.setdefault(tuple(str(point.params.get(name)) for name in SHAPE), point)
    first: dict[str, str] = {}
    for point in of_shape.values():
        first.setdefault(clip_words(point.spec), point.name)
    return {name: words for words, name in first.items()} if len(first) > 1 else {}
