"""Results of `edp-sweep confirm`: trainings of a point with new seeds, and the means of their metrics.

A training's figure has two errors. One is of its seed, and shrinks as seeds are added. The other is of the utterances
that it was measured on. All trainings share these (and the shadow model), so it does not shrink, and the spread over
seeds does not show it. `over_seeds` gives an interval of both; docs/results.md derives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from sweeps.store.journal import CONFIRM
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.columns import TPR
from sweeps.text.figures import deciding_figure
from trainables.records.pareto import Metrics

CONFIDENCE = 0.95
SEEDS = "confirmed_seeds"
"""The metric that counts the new seeds behind a mean."""
DECIDE = 3
"""The smallest number of seeds whose mean is shown. The interval of two seeds is too wide to be of use."""


_MEASURED = tuple(f"{split}{name}" for split in ("valid_", "") for name in ("ser", "mia_auc", TPR))
"""The metrics that have intervals over utterances, and take the place of the sweep's figures."""


@dataclass(frozen=True)
class Estimate:
    """Mean of a metric over seeds with its 95 % interval."""

    mean: float
    lower: float
    upper: float


def estimate(values: list[float]) -> Estimate:
    """Return the mean of at least two values with the interval of their spread (Student's t).

    Both are infinite if the values are.
    """
    # NumPy's mean of equal values may differ from them by rounding, and callers compare the two.
    mean = values[0] if len(set(values)) == 1 else float(np.mean(values))
    if not math.isfinite(mean) or len(set(values)) == 1:
        return Estimate(mean, mean, mean)
    n = len(values)
    half = float(student.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half)


def over_seeds(trainings: Sequence[Metrics], name: str) -> Estimate:
    """Return the mean of a metric over at least two trainings, with an interval of both errors, cut at 0.

    The half-widths of the spread over seeds and of the utterances are independent, so they add up as squares (Zou and
    Donner 2008), each side for itself. That of the utterances is the trainings' own, root mean square. If a training
    has no interval, as for ε, it is the spread alone.
    """
    found = estimate([metrics[name] for metrics in trainings])
    below, above = (_of_utterances(trainings, name, side) for side in ("lower", "upper"))
    if not math.isfinite(found.mean):
        return found
    lower = found.mean - math.hypot(found.mean - found.lower, below)
    return Estimate(found.mean, max(0.0, lower), found.mean + math.hypot(found.upper - found.mean, above))


def _of_utterances(trainings: Sequence[Metrics], name: str, side: str) -> float:
    """Return the root mean square of the distances from a metric to its bound; 0 if a training has no bound."""
    bound = f"{name}_{side}"
    if not all(bound in metrics for metrics in trainings):
        return 0.0
    return math.sqrt(np.mean([(metrics[name] - metrics[bound]) ** 2 for metrics in trainings]))


def next_training(values: list[float]) -> tuple[float, float]:
    """Return the 95 % prediction interval of one more value (Student's t), cut at 0.

    It is wider than the mean's interval, which shrinks as values are added.
    """
    found = estimate(values)
    if not math.isfinite(found.mean):
        return found.mean, found.mean
    half = (found.upper - found.mean) * math.sqrt(len(values) + 1)
    return max(0.0, found.mean - half), found.mean + half


def seed_folder(sweep: Sweep, point: Point, seed: int | str) -> Path:
    """Return the folder of a point's training with its k-th new seed."""
    return sweep.folder / CONFIRM / f"{point.trial}-{point.epoch}" / f"seed-{seed}"


def means(trainings: Sequence[Metrics]) -> Metrics:
    """Return means of SER and leakage over new seeds, their intervals, and `SEEDS`; {} for fewer than `DECIDE`."""
    found: Metrics = {}
    for name in _MEASURED:
        measured = [metrics for metrics in trainings if name in metrics]
        if len(measured) >= DECIDE:
            mean = over_seeds(measured, name)
            found |= {name: mean.mean, f"{name}_lower": mean.lower, f"{name}_upper": mean.upper, SEEDS: len(measured)}
    return found


def comparable(points: Iterable[Point], runs: Mapping[str, Sequence[Metrics]]) -> dict[str, Metrics]:
    """Return the figures by which points are compared where some were trained with new seeds, by a point's name.

    A point with at least `DECIDE` new seeds has their means (`means`). Any other point keeps its single measurement,
    with an interval that holds the spread over seeds of the points that have them, pooled: otherwise a point would look
    better known for not having been confirmed. The dictionary is empty without such points.

    Args:
        runs: metrics of the trainings with new seeds, by a point's name.
    """
    again = {name: found for name, trainings in runs.items() if (found := means(trainings))}
    spread = {name: half for name in _MEASURED if (half := _pooled([runs[key] for key in again], name)) is not None}
    if spread:
        again |= {point.name: _widened(point.metrics, spread) for point in points if point.name not in again}
    return again


def _pooled(confirmed: Sequence[Sequence[Metrics]], name: str) -> float | None:
    """Return the 95 % half-width of one training's figure by its seed; None if no point has enough trainings."""
    groups = [[metrics[name] for metrics in trainings if name in metrics] for trainings in confirmed]
    groups = [values for values in groups if len(values) >= DECIDE and all(map(math.isfinite, values))]
    freedom = sum(len(values) - 1 for values in groups)
    if not freedom:
        return None
    variance = sum((len(values) - 1) * np.var(values, ddof=1) for values in groups) / freedom
    return float(student.ppf((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance))


def _widened(metrics: Metrics, spread: Metrics) -> Metrics:
    """Return the intervals of a single training's figures, widened by the spread over seeds."""
    found: Metrics = {}
    for name, half in spread.items():
        if name in metrics:
            value = metrics[name]
            below, above = (_of_utterances([metrics], name, side) for side in ("lower", "upper"))
            found |= {f"{name}_lower": max(0.0, value - math.hypot(below, half))}
            found |= {f"{name}_upper": value + math.hypot(above, half)}
    return found


def seeds_words(again: Metrics) -> str:
    """Return a point's means over new seeds (`means`) in words, those that choose; "" without new seeds."""
    if SEEDS not in again:
        return ""
    figures = [figure for name in ("ser", "mia_auc", TPR) if (figure := deciding_figure(again, name)).key in again]
    said = [f"{figure.name} {figure.cell(again)} ({figure.ends(again, ' to ')})" for figure in figures]
    return f"mean over {again[SEEDS]:.0f} new seeds, with 95 % intervals: validation {', '.join(said)}"
