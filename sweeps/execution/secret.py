"""Trials of a secret number: nobody but the study hears of them, and the best alone is released."""

from __future__ import annotations

import shutil
from typing import Any

import optuna
from rich.console import Console

from sweeps.execution.callback import SweepCallback
from sweeps.progress.live_table import Progress
from sweeps.recipes.recipe import Recipe
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import close_trial_run, open_trial_run
from trainables.records.job import EpochResult, TrialResult


class SecretCallback(SweepCallback):
    """Tells the study how trials ended, and nobody else: whoever sees one number knows that there were so many."""

    def __init__(self, sweep: Sweep, recipe: Recipe, tracker: Tracker) -> None:
        super().__init__(sweep, recipe, tracker, Progress(Console(quiet=True)))

    def refused(self, trial: optuna.Trial, params: dict[str, Any], reason: str) -> None:
        """Tracks nothing."""

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tracks nothing."""

    def on_epoch(self, trial_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """Tracks nothing."""


def release_best(sweep: Sweep, recipe: Recipe, tracker: Tracker) -> None:
    """Tracks the best trial as the sweep's only one, and deletes what the others left. Done once."""
    best = sweep.trials()
    for folder in (sweep.folder / "trials").glob("*"):
        if folder.name not in {str(trial.folder) for trial in best}:
            shutil.rmtree(folder)
    for trial in best:
        if trial.run_id is None and trial.ledger is not None:
            run_id = open_trial_run(tracker, sweep, recipe, trial.number, trial.params)
            kept = tuple(EpochResult(point.epoch, point.metrics) for point in trial.points)
            outcome = TrialResult(trial.metrics, trial.ledger, {}, kept)
            place = sweep.trial_folder(trial.folder)
            close_trial_run(tracker, run_id, recipe.trial(trial.params), place, outcome, "complete")
            sweep.update(released_run_id=run_id)
