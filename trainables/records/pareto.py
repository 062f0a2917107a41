"""Several objectives, all minimised: their values, dominance between points, and hypervolume."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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


def on_validation(metrics: Mapping[str, float]) -> Metrics:
    """Return the metrics of the validation split, under their own names (`valid_ser`, …)."""
    return {name: value for name, value in metrics.items() if name.startswith(_VALID)}


def deciding(metrics: Mapping[str, float]) -> Metrics:
    """Return the figures that choose, under the objectives' names: those of the validation split replace the test's."""
    return {**metrics, **{name.removeprefix(_VALID): value for name, value in on_validation(metrics).items()}}


def objective_value(name: str, metrics: Metrics) -> float:
    """Return an objective's value; NaN where its metric is missing.

    ε = 0 counts as 1e-12, and an attack that does worse than guessing as guessing.

    Args:
        metrics: the figures that choose (`deciding`).
    """
    if name.startswith("log10_"):
        return math.log10(max(metrics.get(name.removeprefix("log10_"), math.nan), 1e-12))
    return max(metrics.get(name, math.nan), GUESSING.get(name, -math.inf))  # NaN stays, as the first of the two


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
