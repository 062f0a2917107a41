"""The seconds of a sweep, and its budget.

A trial's `worker_seconds` are its wall-clock seconds times its workers, from the start of its processes' work to its
last measurement. Its `gpu_seconds` are these times the GPUs of a worker, so 0 on CPUs. A trial that failed, was
interrupted or still runs has the cost of its finished epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweeps.config.recipe import Recipe
from sweeps.store.records import TrialRecord
from trainables.records.pareto import Metrics

_HOUR = 3600.0
_COUNTED = ("gpu_seconds", "worker_seconds")

Cost = dict[str, float]


def trial_cost(trial: TrialRecord) -> Cost:
    """Return the cost of a trial so far."""
    return _seconds(known(trial))


def sweep_cost(trials: Sequence[TrialRecord], baseline: dict[str, Any] | None) -> Cost:
    """Return the cost of all trials and the SGD baseline so far. Sweeps share the shadow model, so it is left out."""
    return Spent(trials, baseline).seconds


class Spent:
    """The running total of a sweep's seconds, so that the driver checks its budget without reading the study again.

    Args:
        trials: all that exist already.
        baseline: metrics of plain SGD; None before it has ended.
    """

    def __init__(self, trials: Sequence[TrialRecord], baseline: Metrics | None) -> None:
        self._baseline = _seconds(baseline or {})
        self._trials = dict[int, Cost]()
        for trial in trials:
            self.hear(trial.number, known(trial))

    def hear(self, number: int, metrics: Metrics) -> None:
        """Record a trial's latest report. Its seconds count from the trial's start."""
        self._trials[number] = _seconds(metrics)

    @property
    def seconds(self) -> Cost:
        """Seconds of all trials and the baseline."""
        every = [self._baseline, *self._trials.values()]
        return {name: sum(one[name] for one in every) for name in _COUNTED}


def known(trial: TrialRecord) -> Metrics:
    """Return a trial's final metrics; if it has none, those of its last epoch."""
    return trial.metrics or (trial.curve[-1] if trial.curve else {})


def _seconds(metrics: Metrics) -> Cost:
    return {name: float(metrics.get(name, 0.0)) for name in _COUNTED}


def over_budget(spent: Cost, recipe: Recipe) -> str | None:
    """Return the reason why no more trials start; None while the budget lasts."""
    budget = recipe.budget
    if budget is None:
        return None
    for name, most, counted in (
        ("gpu_hours", budget.gpu_hours, "gpu_seconds"),
        ("worker_hours", budget.worker_hours, "worker_seconds"),
    ):
        if most is not None and spent[counted] >= most * _HOUR:
            return (
                f"budget.{name} = {most:g} is spent ({spent[counted] / _HOUR:.3g}): no more trials are started; "
                f"another sweep may have --set budget.{name}=MORE"
            )
    return None


def cost_text(cost: Cost) -> str:
    """Return a cost in words."""
    gpu, worker = cost["gpu_seconds"], cost["worker_seconds"]
    return f"{gpu / _HOUR:.3g} GPU-hours" if gpu else f"{worker / _HOUR:.3g} worker-hours, no GPU"
