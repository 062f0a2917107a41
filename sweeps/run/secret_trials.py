"""Trials of a secret number: nobody but the study hears of them, and the best alone is released."""

from __future__ import annotations

import shutil
from typing import Any

import optuna
from rich.console import Console

from sweeps.recipes.recipe import Recipe
from sweeps.recipes.target_epsilon import Refused
from sweeps.run.driver import TrialLife
from sweeps.run.progress import Progress
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import open_trial_run
from trainables.records.job import EpochResult, TrialResult


class SecretTrials(TrialLife):
    """Tells the study how trials ended, and nobody else: whoever sees one number knows that there were so many."""

    def __init__(
        self, sweep: Sweep, recipe: Recipe, study: optuna.Study, units: int, tracker: Tracker, stop_signal: Any
    ) -> None:
        super().__init__(sweep, recipe, study, units, tracker, Progress(Console(quiet=True)), stop_signal)

    def _track_refusal(self, number: int, refusal: Refused) -> None:
        """Tracks nothing."""

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tracks nothing."""

    def _on_epoch(self, life: Any, epoch: int, metrics: dict[str, float]) -> None:
        """Tracks nothing."""


def release_best(sweep: Sweep, tracker: Tracker) -> None:
    """Tracks the best trial as the sweep's only one, and deletes what the others left. Done once."""
    best = sweep.trials()
    for number in sweep.trial_folders() - {trial.folder for trial in best}:
        shutil.rmtree(sweep.trial_folder(number))
    for trial in best:
        if trial.run_id is None and trial.ledger is not None:
            run = open_trial_run(tracker, sweep, trial.number, trial.params, trial.spec)
            kept = tuple(EpochResult(point.epoch, point.metrics) for point in trial.points)
            outcome = TrialResult(trial.metrics, trial.ledger, {}, kept)
            run.close(trial.spec, sweep.trial_folder(trial.folder), outcome)
            sweep.update(released_run_id=run.run_id)
