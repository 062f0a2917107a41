"""A sweep whose own cost is close to one trial's: a secret number of trials, and only the best is released.

Papernot & Steinke (2022): where the number of trials is drawn from a stated distribution and told nobody, candidates
are drawn independently from one fixed distribution, each at the same target ε, and nothing of the others leaves the
sweep, the ε of the best grows by a small factor instead of with their number. So there is no table, no curve and no
front here: candidates are neither shown nor tracked, and their models are deleted. The number lies in the sweep's own
folder, which its holder must keep to themselves.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import optuna

from edp.selection import random_stopping_epsilon
from sweeps.callback import SweepCallback, close_trial_run, open_trial_run
from sweeps.privacy import planned, settle
from sweeps.search import Outcome
from sweeps.space import corners
from sweeps.spec import Recipe
from sweeps.store import Sweep
from sweeps.tracking import Tracker
from trainables.job import EpochResult, TrialResult

# The truncated negative binomial distribution with shape 1: a geometric number of trials.
_SHAPE = 1.0


def draw_number(mean: float) -> int:
    """How many trials: geometric with the given mean, at least 1, from the operating system's entropy."""
    return int(np.random.default_rng().geometric(1 / mean))


def epsilon_of_best(recipe: Recipe, examples: int) -> float:
    """ε of the released trial, at the worst noise schedule that the space holds (honest, at the recipe's δ)."""
    ledgers = [
        planned(recipe.trial(settle(recipe, params, examples)), examples) for params in corners(recipe.dimensions)
    ]
    return max(random_stopping_epsilon(ledger, recipe.edp.delta, recipe.search.trials, _SHAPE) for ledger in ledgers)


class SecretCallback(SweepCallback):
    """Tells the study how trials ended, and nobody else."""

    def suggested(self, trial_id: str, trial: optuna.Trial, params: dict[str, Any]) -> None:
        """Remembers the trial; shows nothing."""
        self._remember(trial_id, trial, params)

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Shows and tracks nothing."""

    def on_epoch(self, trial_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """Shows and tracks nothing."""

    def show_news(self, number: int, line: str) -> None:
        """Shows nothing."""

    def show_end(self, number: int, outcome: Outcome, state: str) -> None:
        """Shows nothing."""


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
