"""The page's data: a sweep's candidates, front and baseline, and the quantities to draw."""

from __future__ import annotations

import math
from copy import copy
from functools import cached_property
from typing import Any, TypeGuard

from sweeps.config.parts import metric_of
from sweeps.results.front import Candidate, over_limits
from sweeps.results.headline import headline
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from sweeps.text.figures import FIGURES, Figure
from trainables.records.pareto import SelectionFigures

Limits = dict[str, float]
"""The largest allowed value by objective (`SelectionFigures`); others have no limit."""


METRICS = tuple(figure for figure in FIGURES.values() if figure.better)
"""Metrics that the charts offer if a sweep has them."""


class PageData(Snapshot):
    """A sweep at one moment, as the page shows it."""

    problem = ""
    """The reason why the sweep cannot be read any more; everything else is then its last state."""

    @cached_property
    def axes(self) -> dict[str, Figure]:
        """The quantities that can be drawn, metrics first."""
        return drawable(list(self.candidates.values()))

    @cached_property
    def headline(self) -> list[str]:
        """Lines on the released model and its ε."""
        return headline(self)

    def changed(self, **changes: Any) -> PageData:
        """Return a copy with other values in the place of some that were read."""
        found = copy(self)
        vars(found).update(changes)
        return found

    def axis(self, key: str) -> Figure:
        """Return the axis of a key; a plain axis if nothing was measured yet."""
        return self.axes.get(key) or FIGURES.get(key) or Figure(key, key)

    def chosen_by(self, key: str) -> str:
        """Return the name of the metric that chooses: of the validation split, if the candidates have it."""
        known = self.axes or {axis.key for axis in METRICS}
        return f"valid_{key}" if f"valid_{key}" in known else key

    @property
    def first(self) -> Candidate | None:
        """The candidate that is selected at first: the released settings or, before a release, the recommended ones."""
        point = self.release or self.recommended().point
        return None if point is None else self.candidates.get(point.name)

    def figures(self, candidate: Candidate) -> SelectionFigures:
        """Return the figures that limits are on. Means over new seeds replace the sweep's, as in the recommendation."""
        return SelectionFigures(candidate.metrics, self.again.get(candidate.key))


def is_number(value: Any) -> TypeGuard[float]:
    """Return True if `value` can be drawn on a number line."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def snapshot(sweep: Sweep) -> PageData:
    """Read the present state of a sweep, all at once.

    Raises:
        UserError: if it cannot be read.
    """
    found = PageData(sweep)
    for name in ("record", "state", "trials", "candidates", "epsilon", "release", "headline"):
        getattr(found, name)
    return found


def drawable(found: list[Candidate]) -> dict[str, Figure]:
    """Return the metrics that at least one candidate has, and the settings that vary."""
    axes = {a.key: a for a in METRICS if any(is_number(c.value(a.key)) for c in found)}
    if not any(c.metrics.get("gpu_seconds") for c in found):
        axes.pop("gpu_seconds", None)  # no GPU was there
    if len({c.point.epoch for c in found}) > 1:
        axes["epoch"] = Figure("epoch", "Epochs done")
    names = dict.fromkeys(name for c in found for name in c.params)
    for name in names:
        values = [c.params[name] for c in found if name in c.params]
        if name in axes or len({str(v) for v in values}) < 2:
            continue
        numbers = [v for v in values if is_number(v)]
        positive = [v for v in numbers if v > 0]
        log = len(positive) == len(values) and max(positive) / min(positive) >= 30
        axes[name] = Figure(name, name, log=log)
    return axes


def opening_axes(found: PageData) -> tuple[str, str]:
    """Return the metrics of the first two objectives; with one objective, the second is MIA AUC or SER."""
    first, *others = (metric_of(objective) for objective in found.recipe.search.objectives)
    second = others[0] if others else "ser" if first == "mia_auc" else "mia_auc"
    return found.chosen_by(first), found.chosen_by(second)


def cost_key(axes: dict[str, Figure]) -> str:
    """Return the key of the cost axis: GPU-seconds, or worker-seconds if there was no GPU."""
    return "gpu_seconds" if "gpu_seconds" in axes else "worker_seconds"


def slider_at(axis: Figure, most: float) -> float:
    """Return the position of a slider for a limit."""
    return math.log10(most) if axis.log else most


def bounds(axis: Figure, found: list[Candidate], own: float | None = None) -> tuple[float, float, float]:
    """Return the ends of a slider, rounded outwards, and its step; in log10 for a logarithmic axis.

    Args:
        own: the recipe's limit. It lies below the upper end, which is no limit.
    """
    values = [float(c.value(axis.key)) for c in found if is_number(c.value(axis.key))] or [1.0]
    values = [math.log10(v) for v in values] if axis.log else values
    low, high = min(values), max(values)
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-3) / 20))
    step = min(step, 0.001)  # as fine as `text`
    if own is not None:
        low, high = min(low, slider_at(axis, own)), max(high, slider_at(axis, own) + step)
    digits = max(0, -round(math.log10(step)))
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    return round(low, digits), round(max(high, low + step), digits), step


def limit_at(axis: Figure, position: float, step: float, own: float | None = None) -> float:
    """Return the limit at a slider's position: with as many digits as `text` shows of an ε, or the recipe's `own`."""
    if own is not None and abs(position - slider_at(axis, own)) < step:
        return own
    return float(f"{10.0**position:.3g}") if axis.log else position


def within(snapshot: PageData, candidate: Candidate, limits: Limits) -> bool:
    """Return True if a candidate is within all limits. An unmeasured metric counts as over its limit."""
    return not limits or not over_limits(snapshot.figures(candidate), limits)
