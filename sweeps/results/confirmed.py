"""Results of `edp-sweep confirm`: trainings of a point with new seeds, and the means of their metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from sweeps.store.activities import CONFIRM
from sweeps.store.records import ConfirmedRun, Point
from sweeps.store.sweep import Sweep
from trainables.records.files import read_json
from trainables.records.pareto import Metrics

CONFIDENCE = 0.95
SEEDS = "confirmed_seeds"
"""The metric that counts the new seeds behind a mean."""
DECIDE = 3
"""The smallest number of seeds whose mean is shown. The interval of two seeds is too wide to be of use."""


@dataclass(frozen=True)
class Estimate:
    """Mean of a metric over seeds with its 95 % interval (Student's t)."""

    mean: float
    lower: float
    upper: float


def estimate(values: list[float]) -> Estimate:
    """Return the mean of at least two values with its interval; infinite if the values are."""
    # NumPy's mean of equal values may differ from them by rounding, and callers compare the two.
    mean = values[0] if len(set(values)) == 1 else float(np.mean(values))
    if not math.isfinite(mean) or len(set(values)) == 1:
        return Estimate(mean, mean, mean)
    n = len(values)
    half = float(student.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return Estimate(mean, mean - half, mean + half)


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


def confirmed_runs(sweep: Sweep, point: Point) -> list[ConfirmedRun]:
    """Return the trainings of a point with new seeds.

    Raises:
        BrokenFile: for a file that is incomplete.
    """
    pattern = seed_folder(sweep, point, "*")
    return [read_json(path, ConfirmedRun) for path in sorted(pattern.parent.glob(f"{pattern.name}/result.json"))]


def new_seeds(sweep: Sweep, point: Point) -> Metrics:
    """Return means of SER and leakage over new seeds, their intervals, and `SEEDS`; {} for fewer than `DECIDE`."""
    runs = [run.metrics for run in confirmed_runs(sweep, point)]
    found: Metrics = {}
    for name in (f"{split}{name}" for split in ("valid_", "") for name in ("ser", "mia_auc", "mia_tpr_at_1pct_fpr")):
        values = [metrics[name] for metrics in runs if name in metrics]
        if len(values) >= DECIDE:
            mean = estimate(values)
            found |= {name: mean.mean, f"{name}_lower": mean.lower, f"{name}_upper": mean.upper, SEEDS: len(values)}
    return found
