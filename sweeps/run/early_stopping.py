"""Which trials are stopped early: non-dominated sorting at rungs, after MOASHA (Schmucker et al. 2021; Syne Tune).

ASHA halts what is behind at an epoch; with several objectives there is no single order. MOASHA ranks the trials that
reached a rung by the front that they are on there, and lets the best part go on. Adapted here:

- A trial may be judged more often than it is stopped for: rungs are the epochs `grace_epochs * ETA**k`, and at a rung
  a trial is held against what *all* trials had there, so one that was early is not judged by few for ever.
- A trial that is on the first front of its rung is never stopped, nor one that is among the better half.
- It is stopped only if it is also dominated *with a margin*: at that epoch or an earlier one (at no more cost), some
  trial had a point that is nowhere worse, and somewhere better by `margin` of the range that the objective has had. SER
  and MIA AUC are noisy on a validation split; a lead that noise explains stops nobody.

The point of a trial at a rung is its objectives, SER and leakage on the validation split, and log10 of what ε it has
spent by that epoch, also where the target is fixed and ε no objective: a trial with little noise and one with much are
seldom comparable, and one whose noise decays has the better part of its ε still to spend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.recipes.parts import StopSpec
from trainables.records.epochs import point_of, read_curve
from trainables.records.pareto import Metrics, Objectives, Values, dominates, non_dominated, objective_value

if TYPE_CHECKING:
    from sweeps.recipes.recipe import Recipe

ETA = 2
"""Each rung has so many times the epochs of the one before."""

FEWEST = 4
"""Trials that must have reached a rung before one is stopped there."""


class Stopper:
    """Remembers the points of all trials by epoch, and judges a trial at each rung.

    Args:
        spec: when.
        epochs: of a whole trial: at its last there is nothing left to stop.
        every: epochs from one report to the next; rungs in between are the next report's.
    """

    def __init__(self, spec: StopSpec, epochs: int, every: int = 1) -> None:
        self._spec, self._every = spec, every
        self._rungs = {self._reports(rung) for rung in rungs(spec.grace_epochs, epochs)} - {self._reports(epochs)}
        self._curves: dict[int, list[Values]] = {}

    def seen(self, trial: int, curve: Sequence[Values]) -> None:
        """What a trial reported so far, the first epoch first; trials of an earlier session are told here."""
        self._curves[trial] = list(curve)

    def after_epoch(self, trial: int, epoch: int, point: Values) -> str | None:
        """Takes the point of a trial that has done `epoch` epochs; returns the reason to stop it, if there is one."""
        curve = self._curves.setdefault(trial, [])
        reports = self._reports(epoch)
        del curve[reports - 1 :]  # a trial that went on from a checkpoint repeats an epoch
        curve.append(point)
        return self._judge(trial, reports, point) if reports in self._rungs and len(curve) == reports else None

    def _reports(self, epoch: int) -> int:
        """How many reports there are when an epoch has been told."""
        return -(-epoch // self._every)

    def _judge(self, trial: int, reports: int, point: Values) -> str | None:
        rung = {number: curve[reports - 1] for number, curve in self._curves.items() if len(curve) >= reports}
        if len(rung) < FEWEST or _ahead(rung, trial) < len(rung) / ETA:
            return None
        margins = _margins([p for curve in self._curves.values() for p in curve[:reports]], self._spec.margin)
        for number, curve in self._curves.items():
            if number != trial and any(_beats(other, point, margins) for other in curve[:reports]):
                return f"after {reports * self._every} epochs dominated with a margin by trial {number}"
        return None


def start_stopper(recipe: Recipe, trials: Path) -> Any | None:
    """An actor of the recipe's stopper that knows what earlier sessions' trials had; None where nothing is stopped.

    Args:
        trials: folder of the trials' folders, named by number.
    """
    search = recipe.search
    if search.stop is None or search.secret:
        return None  # candidates that end by what others had would not be independent
    from trainables.execution.job_queue import beside_caller  # Ray, which the rule itself does without

    stopper = beside_caller(Stopper, search.stop, recipe.training.epochs, recipe.training.validate_every)
    for number, curve in curves_in(trials).items():
        stopper.seen.remote(number, [rung_point(metrics, search.objectives) for metrics in curve])
    return stopper


def curves_in(trials: Path) -> dict[int, list[Metrics]]:
    """What the trials in a folder of theirs have reported, by number; what others put there is no trial."""
    return {int(folder.name): read_curve(folder) for folder in trials.glob("*") if folder.name.isdecimal()}


def rung_point(metrics: Metrics, objectives: Objectives) -> Values:
    """What trials are compared by at a rung."""
    point = point_of(metrics, objectives)
    if any(name.startswith("log10_epsilon") for name in objectives):
        return point
    # Two digits: z0 is solved for to within a little of the target, which must not decide who dominates whom.
    return *point, round(objective_value("log10_epsilon", metrics), 2)


def rungs(grace_epochs: int, epochs: int) -> list[int]:
    """The epochs at which trials are judged: grace_epochs, twice as many, …, before the last."""
    found = []
    epoch = grace_epochs
    while epoch < epochs:
        found.append(epoch)
        epoch *= ETA
    return found


def _ahead(rung: dict[int, Values], trial: int) -> int:
    """How many trials of a rung are on fronts before the one that `trial` is on; 0 on the first."""
    left, passed = dict(rung), 0
    while True:
        numbers = list(left)
        front = {numbers[i] for i in non_dominated([left[n] for n in numbers])}
        if trial in front:
            return passed
        passed += len(front)
        left = {n: p for n, p in left.items() if n not in front}


def _beats(one: Values, other: Values, margins: Values) -> bool:
    return dominates(one, other) and any(a < b - gap for a, b, gap in zip(one, other, margins, strict=True))


def _margins(points: Sequence[Values], share: float) -> list[float]:
    widths = (max(column) - min(column) for column in zip(*points, strict=True))
    return [share * width if math.isfinite(width) else 0.0 for width in widths]
