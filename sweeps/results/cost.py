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
from sweeps.state.sweep import Sweep

_HOUR = 3600.0
_COUNTED = ("gpu_seconds", "worker_seconds")

Cost = dict[str, float]


def priced(seconds: Cost, recipe: Recipe) -> Cost:
    """`seconds` with `money`, where the recipe names a price; in the price's currency."""
    price = recipe.resources.price_per_gpu_hour
    return seconds if price is None else {**seconds, "money": seconds["gpu_seconds"] / _HOUR * price}


def trial_cost(trial: TrialRecord, recipe: Recipe) -> Cost:
    """What a trial has cost so far."""
    known = trial.metrics or (trial.curve[-1] if trial.curve else {})
    return priced({name: float(known.get(name, 0.0)) for name in _COUNTED}, recipe)


def sweep_cost(trials: Sequence[TrialRecord], baseline: dict[str, Any] | None, recipe: Recipe) -> Cost:
    """What all trials and the SGD baseline have cost so far. The shadow model, which sweeps share, is not in it."""
    every = [trial_cost(trial, recipe) for trial in trials]
    base = baseline or {}
    return priced({name: sum(c[name] for c in every) + float(base.get(name, 0.0)) for name in _COUNTED}, recipe)


def over_budget(trials: Sequence[TrialRecord], sweep: Sweep, recipe: Recipe) -> str | None:
    """Why no more trials are started, in one line; None while the budget lasts."""
    budget = recipe.budget
    if budget is None:
        return None
    spent = sweep_cost(trials, sweep.record.baseline, recipe)
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
