"""Ties: pairs of points whose order on the front is within the measurement's noise.

SER, MIA AUC and TPR are estimates with 95 % intervals (`ser_lower`, `ser_upper`, …); ε is computed and has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sweeps.config.parts import Objective, objective_values
from sweeps.store.records import Point, TrialRecord
from sweeps.text.figures import enumerated
from trainables.records.pareto import dominates

Metrics = dict[str, float]


def difference(one: Metrics, other: Metrics, objective: Objective) -> tuple[float, float]:
    """Return the 95 % interval of `one` minus `other` in an objective, from the interval of each (Zou and Donner 2008).

    The two are taken to be independent. Trials share their test utterances, which makes them alike, so the interval
    is too wide rather than too narrow. A figure without an interval, as ε, counts as exact.
    """
    (a,), (b,) = objective_values((objective,), one), objective_values((objective,), other)
    if a == b:
        gap = 0.0  # also where both are infinite
    else:
        gap = a - b
    if not all(f"{objective}_{side}" in metrics for side in ("lower", "upper") for metrics in (one, other)):
        return gap, gap
    below = math.hypot(a - one[f"{objective}_lower"], other[f"{objective}_upper"] - b)
    above = math.hypot(one[f"{objective}_upper"] - a, b - other[f"{objective}_lower"])
    return gap - below, gap + above


def lead_is_noise(ahead: Metrics, behind: Metrics, objectives: tuple[Objective, ...]) -> bool:
    """Return True if `ahead` leads in some objective, and every lead is within noise.

    A lead is within noise if the 95 % interval of the difference reaches 0.
    """
    values = zip(objectives, objective_values(objectives, ahead), objective_values(objectives, behind), strict=True)
    better = [name for name, a, b in values if a < b]
    return bool(better) and all(difference(ahead, behind, name)[1] >= 0 for name in better)


def ties(
    trials: Sequence[TrialRecord], front: Sequence[Point], objectives: tuple[Objective, ...]
) -> dict[str, list[str]]:
    """Return the points whose place on the front is within noise, with the front's points that they are tied with.

    The front is computed on estimates. A point's place depends on which one of a pair is ahead:

    - A dominated point p is tied with a point q of the front that dominates it, where q's lead is noise: p may be as
      good as q.
    - A point p of the front is tied with another one, q, where p's own lead over q is noise: q is ahead in something
      else, and p may truly be ahead in nothing.

    ε is exact. Where it is an objective, a dominated point is never tied with a q of smaller ε, however close their SER
    and MIA AUC are. Where it is no objective, as at a fixed target, it plays no part.

    Returns:
        Names of tied points by a point's name, both in order of trial and epoch, without points that have no tie.
    """
    on_front = {point.name: objective_values(objectives, point.metrics) for point in front}
    ordered = _in_order(front)
    found: dict[str, list[str]] = {}
    for point in _in_order(point for t in trials if t.state in ("complete", "stopped") for point in t.points):
        values = objective_values(objectives, point.metrics)
        for other in ordered:
            if other.name == point.name:
                continue
            if point.name in on_front:
                tied = lead_is_noise(point.metrics, other.metrics, objectives)
            else:
                over = dominates(on_front[other.name], values)
                tied = over and lead_is_noise(other.metrics, point.metrics, objectives)
            if tied:
                found.setdefault(point.name, []).append(other.name)
    return found


def tie_lines(tied: dict[str, list[str]], on_front: set[str]) -> list[str]:
    """Return what `ties` found, in words. Two points that are each ahead in something are named once."""
    lines, order = [], list(tied)
    for i, (name, others) in enumerate(tied.items()):
        alike = [other for other in others if name in tied.get(other, [])]
        ahead = [other for other in others if other not in alike]
        said = enumerated([other for other in alike if other in order[i + 1 :]])
        if said:
            lines.append(f"Trial {name} differs from {said} by less than the measurement's noise.")
        if ahead:
            verb = "beats" if name in on_front else "is behind"
            lines.append(f"Trial {name} {verb} {enumerated(ahead)} by less than the measurement's noise.")
    return lines


def _in_order(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: (point.trial, point.epoch))
