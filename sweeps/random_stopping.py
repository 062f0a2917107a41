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
from rich.console import Console

from edp.calibrate import Plan, z0_for_epsilon
from edp.epsilon import planned_ledger
from edp.selection import random_stopping_epsilon
from edp.spec import EDPSpec, UserError
from sweeps.callback import SweepCallback, close_trial_run, open_trial_run
from sweeps.front import params_text
from sweeps.privacy import Refused, settle
from sweeps.space import corners
from sweeps.spec import Recipe
from sweeps.store import Sweep
from sweeps.tracking import Tracker
from sweeps.watch import Watch
from trainables.job import EpochResult, TrialResult

# The truncated negative binomial distribution with shape 1: a geometric number of trials.
_SHAPE = 1.0


def draw_number(mean: float) -> int:
    """How many trials: geometric with the given mean, at least 1, from the operating system's entropy."""
    return int(np.random.default_rng().geometric(1 / mean))


def check_candidates(recipe: Recipe) -> None:
    """Raises UserError where a corner of the space cannot meet the target ε.

    Such candidates are refused before they start, which nobody would see of a sweep that shows nothing.
    """
    for params in corners(recipe.dimensions):
        try:
            # Shuffled epochs cost the same for any number of examples; of so many no band is too long.
            settle(recipe, params, examples=10**9)
        except Refused as refusal:
            raise UserError(f"edp.epsilon = {recipe.edp.epsilon:g} at {params_text(params)}: {refusal}") from None


def epsilon_of_best(recipe: Recipe) -> float:
    """ε of the released trial, whatever candidate it is (honest, at the recipe's δ).

    With shuffled epochs a candidate is one Gaussian mechanism, whatever its decay, epochs and layer scales, and none
    costs more than the target: the worst is the Gaussian mechanism that costs the target.
    """
    assert recipe.edp.epsilon is not None, "checked with the recipe"
    spec = EDPSpec(delta=recipe.edp.delta)
    one: Plan = {"micro_batches": 1, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}
    # What is found costs up to 1e-4 less than was asked for.
    z0 = z0_for_epsilon(recipe.edp.epsilon + 1e-4, spec, epochs=1, **one)
    worst = planned_ledger(spec.model_copy(update={"z0": z0}), epochs=1, **one)
    return random_stopping_epsilon(worst, recipe.edp.delta, recipe.search.trials, _SHAPE)


class SecretCallback(SweepCallback):
    """Tells the study how trials ended, and nobody else: whoever sees one number knows that there were so many."""

    def __init__(self, sweep: Sweep, recipe: Recipe, tracker: Tracker) -> None:
        super().__init__(sweep, recipe, tracker, Watch(Console(quiet=True)))

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
