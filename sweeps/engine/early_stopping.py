"""Early stopping of trials by non-dominated sorting at rungs, after MOASHA (Schmucker et al. 2021; Syne Tune).

ASHA stops the trials that are behind at an epoch; with several objectives there is no single order. MOASHA ranks the
trials that reached a rung by their fronts at that rung, and continues the best part. Adapted here:

- Rungs are the epochs `grace_epochs * ETA**k`. At a rung a trial is compared with the points that *all* trials had
  there, so that a later trial is compared with more points than an early one.
- A trial on the first front of its rung is never stopped, nor one among the better half.
- A trial is stopped only if it is also dominated *with a margin*: at that epoch or an earlier one (at no more cost),
  some trial had a point that is nowhere worse, and somewhere better by `margin` of the range of the objective so far.
  SER and MIA AUC are noisy on a validation split, and a lead within that noise must not stop a trial.

The point of a trial at a rung holds its objectives, SER and leakage on the validation split, and log10 of the ε of the
steps that it has executed by that epoch, even if the target is fixed and ε is no objective: trials with little and with
much noise are seldom comparable, and a trial whose noise decays has had most of its noise by then.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from sweeps.config.parts import StopSpec
from trainables.records.epochs import point_of, read_curve
from trainables.records.pareto import (
    Metrics,
    Objectives,
    SelectionFigures,
    Values,
    dominates,
    non_dominated,
    objective_value,
)

ETA = 2
"""Factor between the epochs of two successive rungs."""

MIN_TRIALS = 4
"""Trials that must have reached a rung before one is stopped there."""


class Stopper:
    """The points of all trials by epoch, with which a trial is judged at each rung.

    Args:
        spec: the recipe's settings.
        epochs: epochs of a complete trial, after the last of which no trial is stopped.
        every: epochs between reports. A trial is judged at the first report at or after a rung.
        curves: the points of trials that began before, by number, the first epoch first.
    """

    def __init__(
        self, spec: StopSpec, epochs: int, every: int = 1, curves: Mapping[int, Sequence[Values]] | None = None
    ) -> None:
        self._spec, self._every = spec, every
        self._rungs = {self._reports(rung) for rung in rungs(spec.grace_epochs, epochs)} - {self._reports(epochs)}
        self._curves = {number: list(curve) for number, curve in (curves or {}).items()}

    def after_epoch(self, trial: int, epoch: int, point: Values, others: Container[int] | None = None) -> str | None:
        """Add the point of a trial after `epoch` epochs, and return the reason to stop it, if there is one.

        Args:
            others: numbers of the trials that it is compared with; None: all.
        """
        curve = self._curves.setdefault(trial, [])
        reports = self._reports(epoch)
        del curve[reports - 1 :]  # a trial that continued from a checkpoint repeats epochs
        curve.append(point)
        if reports not in self._rungs or len(curve) != reports:
            return None
        curves = {n: one for n, one in self._curves.items() if others is None or n in others or n == trial}
        return self._judge(trial, reports, point, curves)

    def _reports(self, epoch: int) -> int:
        """Return the number of reports up to and including `epoch`."""
        return -(-epoch // self._every)

    def _judge(self, trial: int, reports: int, point: Values, curves: dict[int, list[Values]]) -> str | None:
        """Return the reason to stop a trial at a rung, if there is one."""
        rung = {number: curve[reports - 1] for number, curve in curves.items() if len(curve) >= reports}
        if len(rung) < MIN_TRIALS or _ahead(rung, trial) < len(rung) / ETA:
            return None
        margins = _margins([p for curve in curves.values() for p in curve[:reports]], self._spec.margin)
        for number, curve in curves.items():
            if number != trial and any(_beats(other, point, margins) for other in curve[:reports]):
                return f"after {reports * self._every} epochs dominated with a margin by trial {number}"
        return None


def curves_in(trials: Path, objectives: Objectives) -> dict[int, list[Values]]:
    """Return the curves of the trials whose folders are in `trials`, by number; other files are ignored."""
    found = {int(folder.name): read_curve(folder) for folder in trials.glob("*") if folder.name.isdecimal()}
    return {number: [rung_point(metrics, objectives) for metrics in curve] for number, curve in found.items()}


def rung_point(metrics: Metrics, objectives: Objectives) -> Values:
    """Return the point by which trials are compared at a rung."""
    metrics = metrics | {"epsilon": metrics["epsilon_executed"]}
    point = point_of(metrics, objectives)
    if any(name.startswith("log10_epsilon") for name in objectives):
        return point
    # Two digits, because a target ε is met to within a small tolerance, which must not decide which trial dominates.
    return *point, round(objective_value("log10_epsilon", SelectionFigures(metrics)), 2)


def rungs(grace_epochs: int, epochs: int) -> list[int]:
    """Return the epochs before the last at which trials are judged: `grace_epochs`, twice as many, and so on."""
    found = []
    epoch = grace_epochs
    while epoch < epochs:
        found.append(epoch)
        epoch *= ETA
    return found


def _ahead(rung: dict[int, Values], trial: int) -> int:
    """Return the number of trials of a rung on fronts before that of `trial`, 0 if it is on the first front."""
    left, passed = dict(rung), 0
    while True:
        numbers = list(left)
        front = {numbers[i] for i in non_dominated([left[n] for n in numbers])}
        if trial in front:
            return passed
        passed += len(front)
        left = {n: p for n, p in left.items() if n not in front}


def _beats(one: Values, other: Values, margins: Values) -> bool:
    """Return True if `one` dominates `other`, and is better by the margin of some objective."""
    return dominates(one, other) and any(a < b - gap for a, b, gap in zip(one, other, margins, strict=True))


def _margins(points: Sequence[Values], share: float) -> list[float]:
    """Return `share` of each objective's range over `points`; 0 for an infinite range."""
    widths = (max(column) - min(column) for column in zip(*points, strict=True))
    return [share * width if math.isfinite(width) else 0.0 for width in widths]
