"""What a sweep has cost, and whether it may start another trial.

A trial's `gpu_seconds` are its wall-clock seconds times its workers times what each has of a GPU, from the start of its
processes' work to its last measurement; `worker_seconds` leave the GPUs out, and are what there is on CPUs. A trial
that failed, runs or was interrupted has cost what its finished epochs had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweeps.recipes.recipe import Recipe
from sweeps.state.records import TrialRecord
from trainables.records.pareto import Metrics

_HOUR = 3600.0
_COUNTED = ("gpu_seconds", "worker_seconds")

Cost = dict[str, float]


def priced(seconds: Cost, recipe: Recipe) -> Cost:
    """`seconds` with `money`, where the recipe names a price; in the price's currency."""
    price = recipe.resources.price_per_gpu_hour
    return seconds if price is None else {**seconds, "money": seconds["gpu_seconds"] / _HOUR * price}


def trial_cost(trial: TrialRecord, recipe: Recipe) -> Cost:
    """What a trial has cost so far."""
    return priced(_seconds(known(trial)), recipe)


def sweep_cost(trials: Sequence[TrialRecord], baseline: dict[str, Any] | None, recipe: Recipe) -> Cost:
    """What all trials and the SGD baseline have cost so far. The shadow model, which sweeps share, is not in it."""
    return priced(Spent(trials, baseline).seconds, recipe)


class Spent:
    """The seconds of a sweep, as its driver hears of them: what a budget is held against reads no study again.

    Args:
        trials: all that are known already.
        baseline: metrics of plain SGD.
    """

    def __init__(self, trials: Sequence[TrialRecord], baseline: Metrics | None) -> None:
        self._baseline = _seconds(baseline or {})
        self._trials = dict[int, Cost]()
        for trial in trials:
            self.hear(trial.number, known(trial))

    def hear(self, number: int, metrics: Metrics) -> None:
        """A trial has reported: an epoch, or what it came to. Seconds are counted from its start."""
        self._trials[number] = _seconds(metrics)

    @property
    def seconds(self) -> Cost:
        """Of all trials and the baseline."""
        every = [self._baseline, *self._trials.values()]
        return {name: sum(one[name] for one in every) for name in _COUNTED}


def known(trial: TrialRecord) -> Metrics:
    """What a trial came to; of one that has not ended well, what its last epoch did."""
    return trial.metrics or (trial.curve[-1] if trial.curve else {})


def _seconds(metrics: Metrics) -> Cost:
    return {name: float(metrics.get(name, 0.0)) for name in _COUNTED}


def over_budget(spent: Cost, recipe: Recipe) -> str | None:
    """Why no more trials are started, in one line; None while the budget lasts."""
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
    """A cost in words."""
    gpu, worker = cost["gpu_seconds"], cost["worker_seconds"]
    time = f"{gpu / _HOUR:.3g} GPU-hours" if gpu else f"{worker / _HOUR:.3g} worker-hours, no GPU"
    return f"{time}, {cost['money']:,.2f} at the recipe's price" if "money" in cost else time
