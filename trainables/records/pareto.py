"""Several objectives, all minimised: their values, dominance between points, and hypervolume."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Metrics = dict[str, float]

Objectives = tuple[str, ...]
"""Names of metrics that are minimised; `log10_epsilon` is that of `epsilon`."""

TRADE_OFF: Objectives = ("ser", "mia_auc", "log10_epsilon")
"""The objectives of a search that varies ε."""

GUESSING: Mapping[str, float] = {"mia_auc": 0.5, "mia_tpr_at_1pct_fpr": 0.01}
"""The value of each leakage metric for an attack that guesses. Lower values do not mean less leakage."""

Values = Sequence[float]

_VALID = "valid_"
"""The prefix of a metric of the validation split. The same metric without it is of the test split."""

Interval = tuple[float, float]
"""The ends of a 95 % interval."""


def on_validation(metrics: Mapping[str, float]) -> Metrics:
    """Return the metrics of the validation split, under their own names (`valid_ser`, …)."""
    return {name: value for name, value in metrics.items() if name.startswith(_VALID)}


def selection_key(metrics: Mapping[str, Any], name: str) -> str:
    """Return the key of the metric that chooses for an objective: of the validation split, else of the test split."""
    return key if (key := f"{_VALID}{name}") in metrics else name


def interval_of(metrics: Mapping[str, Any], key: str) -> Interval | None:
    """Return the 95 % interval of a metric; None if it has none."""
    low, high = metrics.get(f"{key}_lower"), metrics.get(f"{key}_upper")
    return None if low is None or high is None else (low, high)


class SelectionFigures:
    """The figures of a model that choose, by objective (`selection_key`).

    They are no `Metrics`, so that a SER that chooses and a SER of the test split cannot be taken for each other.

    Args:
        measured: the metrics of the model.
        again: metrics that replace them, such as means over new seeds.
    """

    def __init__(self, measured: Mapping[str, Any], again: Mapping[str, Any] | None = None) -> None:
        self._measured = {**measured, **again} if again else measured

    def __contains__(self, name: str) -> bool:
        return selection_key(self._measured, name) in self._measured

    def __getitem__(self, name: str) -> float:
        found: float = self._measured[selection_key(self._measured, name)]
        return found

    def get(self, name: str, default: float = math.nan) -> float:
        """Return a figure; `default` if it was not measured."""
        found: float = self._measured.get(selection_key(self._measured, name), default)
        return found

    def interval(self, name: str) -> Interval | None:
        """Return the 95 % interval of a figure; None if it has none."""
        return interval_of(self._measured, selection_key(self._measured, name))


def objective_value(name: str, figures: SelectionFigures) -> float:
    """Return an objective's value; NaN where its metric is missing.

    ε = 0 counts as 1e-12, and an attack that does worse than guessing as guessing.
    """
    if name.startswith("log10_"):
        return math.log10(max(figures.get(name.removeprefix("log10_")), 1e-12))
    return max(figures.get(name), GUESSING.get(name, -math.inf))  # NaN stays, as the first of the two


def objective_values(names: Objectives, figures: SelectionFigures) -> list[float]:
    """Return the objectives' values, each as `objective_value`."""
    return [objective_value(name, figures) for name in names]


def difference(a: float, of_a: Interval | None, b: float, of_b: Interval | None) -> Interval:
    """Return the 95 % interval of `a - b`, from the interval of each (Zou and Donner 2008).

    The formula takes the two as independent. Trials share their utterances and so are positively correlated, which
    makes the interval too wide rather than too narrow. A figure without an interval, such as ε, counts as exact.
    """
    gap = 0.0 if a == b else a - b  # also if both are infinite
    if of_a is None or of_b is None:
        return gap, gap
    return gap - math.hypot(a - of_a[0], of_b[1] - b), gap + math.hypot(of_a[1] - a, b - of_b[0])


def dominates(one: Values, other: Values) -> bool:
    """Return True if `one` is nowhere worse and somewhere better than `other`."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


def non_dominated(points: Sequence[Values]) -> list[int]:
    """Return the indices of the points that no other point dominates; equal points do not dominate each other."""
    # A point that dominates another comes before it in this order. So comparing with the points found so far is enough:
    # a dominator that was left out was dominated by one of them.
    order = sorted(range(len(points)), key=lambda i: [math.inf if math.isnan(v) else v for v in points[i]])
    found: list[int] = []
    for i in order:
        if not any(dominates(points[j], points[i]) for j in found):
            found.append(i)
    return sorted(found)


def hypervolume(points: Sequence[Values], reference: Values) -> float:
    """Return the volume that `points` dominate within `reference`, by slicing along the last objective.

    Points that are not better than `reference` everywhere add nothing.
    """
    inside = [tuple(p) for p in points if all(a < r for a, r in zip(p, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(p[0] for p in inside)
    front = sorted((inside[i] for i in non_dominated(inside)), key=lambda p: p[-1])
    ends = [*(p[-1] for p in front[1:]), reference[-1]]
    return sum(
        (end - point[-1]) * hypervolume([p[:-1] for p in front[: i + 1]], reference[:-1])
        for i, (point, end) in enumerate(zip(front, ends, strict=True))
        if end > point[-1]
    )
