"""The cost of a sweep: its seconds and budget, and the ε of everything that ran on its private corpus.

A trial's `worker_seconds` are its wall-clock seconds times its workers, from the start of its processes' work to its
last measurement. Its `gpu_seconds` are these times the GPUs of a worker, so 0 on CPUs. A trial that failed, was
interrupted or still runs has the cost of its finished epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edp.accounting.selection import composed_epsilon, composed_epsilon_user
from edp.ledger import Ledger
from sweeps.config.choice import chosen_in, chosen_on
from sweeps.config.recipe import Recipe
from sweeps.store.journal import CONFIRM
from sweeps.store.picks import final_trainings
from sweeps.store.plans import plan_of, private_corpus
from sweeps.store.records import TrialRecord, known_ledger
from sweeps.store.sweep import Sweep
from sweeps.text.figures import enumerated, epsilon_text, labels_remark
from trainables.records.epochs import read_curve
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


def epsilon_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """Return the ε of all trainings together: the composition of their ledgers, without the baseline.

    A sweep that chooses on a public proxy corpus costs what was trained on the private corpus: the release and other
    final trainings. Return None if the steps of some training are unknown: ε then has no upper bound.
    """
    ledgers = _ledgers(sweep, trials)
    if ledgers is None:
        return None
    return composed_epsilon(ledgers, sweep.recipe.edp.delta) if ledgers else 0.0


def epsilon_user_of_sweep(sweep: Sweep, trials: list[TrialRecord]) -> float | None:
    """Return the ε of all trainings together for one user; None also if the users are unknown."""
    ledgers = _ledgers(sweep, trials)
    return composed_epsilon_user(ledgers, sweep.recipe.edp.delta) if ledgers is not None else None


def unknown_ledgers(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """Return a clause that names the trainings whose ledger is missing or broken; "" if there are none."""
    lost = [str(trial.number) for trial in _counted(sweep, trials) if trial.ledger is None]
    which = [f"trial{'s' if len(lost) > 1 else ''} {enumerated(lost)}"] if lost else []
    which += [str(place.relative_to(sweep.folder.parent)) for place, ledger in _later(sweep).items() if ledger is None]
    return f"the ledger of {enumerated(which)} is missing, broken or incomplete" if which else ""


def cost_line(sweep: Sweep, trials: list[TrialRecord]) -> str:
    """Return the ε of the sweep in one line, with the trainings that it is composed of and what chooses among them."""
    epsilon = epsilon_of_sweep(sweep, trials)
    value = epsilon_text(epsilon) if epsilon is not None else f"unknown: {unknown_ledgers(sweep, trials)}"
    user = epsilon_user_of_sweep(sweep, trials)
    of_user = f"; of a user: {epsilon_text(user)}" if user is not None and trials else ""
    whole = "ε of the whole sweep" if plan_of(sweep) is None else "ε in all"
    said = "".join(f"; {words}" for words in labels_remark(private_corpus(sweep)))
    return f"{whole} ({what_counts(sweep)}): {value}{of_user}{said}; a configuration is {choice_of(sweep)}"


def choice_of(sweep: Sweep, limits: Iterable[str] = ()) -> str:
    """Return what chooses among the trials of a sweep, and whether an ε covers that.

    Args:
        limits: names of metrics with a limit.
    """
    search, corpus = sweep.recipe.search, sweep.recipe.corpus.name
    chosen = chosen_on(corpus) if plan_of(sweep) is not None else chosen_in(search, limits)
    return f"{chosen}; the search began at points of {search.points_from}" if search.points_from else chosen


def what_counts(sweep: Sweep) -> str:
    """Return the trainings that the sweep's ε is composed of, in words."""
    confirmed, final = len(_confirmed(sweep)), len(final_trainings(sweep))
    if (plan := plan_of(sweep)) is not None:
        private = f"{final} training{'s' * (final != 1)} on {plan.recipe.corpus.name}"
        return f"{private}; the trials ran on {sweep.recipe.corpus.name}, which is public, and cost nothing"
    later = [f"{confirmed} trainings of confirm"] if confirmed else []
    later += [f"{final} final training{'s' if final > 1 else ''}"] if final else []
    return f"{enumerated(['all trials', *later])} composed"


def _ledgers(sweep: Sweep, trials: list[TrialRecord]) -> list[Ledger] | None:
    """Return the ledgers of all trainings; None if one of them is unknown."""
    every = [*(trial.ledger for trial in _counted(sweep, trials)), *_later(sweep).values()]
    found = [ledger for ledger in every if ledger is not None]
    return found if len(found) == len(every) else None


def _counted(sweep: Sweep, trials: list[TrialRecord]) -> list[TrialRecord]:
    """Return the trials whose ledgers count: none if their corpus is public."""
    return [] if plan_of(sweep) is not None else trials


def _later(sweep: Sweep) -> dict[Path, Ledger | None]:
    """Return the ledgers of trainings after the search, by folder."""
    confirmed = _confirmed(sweep) if plan_of(sweep) is None else []  # a planned sweep's `confirm` trains on the proxy
    return {folder: known_ledger(folder, read_curve(folder)) for folder in [*confirmed, *final_trainings(sweep)]}


def _confirmed(sweep: Sweep) -> list[Path]:
    return sorted((sweep.folder / CONFIRM).glob("*/seed-*/"))
