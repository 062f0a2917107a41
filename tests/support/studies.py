"""A sweep's study, and trials that are told to it without being trained."""

from __future__ import annotations

from pathlib import Path

from edp.ledger import Ledger
from sweeps.recipes.loading import load_recipe
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.target_epsilon import settle
from sweeps.run.study import open_study
from sweeps.run.study_trials import StudyTrials
from sweeps.state.records import SweepRecord
from sweeps.state.sweep import Sweep
from trainables.records.job import EpochResult, TrialResult

RECIPE = load_recipe("quickstart_paper", [])[1]
"""Of points that are made up."""

METRICS = {"ser": 0.5, "mia_auc": 0.5, "epsilon": 10.0, "epsilon_paper": 5.0, "delta": 5e-4}


def sweep(storage: Path, *settings: str) -> tuple[Sweep, Recipe]:
    recipe = load_recipe("quickstart_paper", list(settings))[1]
    made = Sweep.new(storage, "one")
    made.save_recipe(recipe)
    record = {"recipe": "quickstart_paper", "state": "running", "tracking_uri": "", "run_id": "0123456789", "wanted": 8}
    made.save(SweepRecord.model_validate({"name": "one", "pid": 1, **record}))
    return made, recipe


def trials(made: Sweep, recipe: Recipe) -> StudyTrials:
    study = open_study(made, recipe)
    return StudyTrials(study, recipe, lambda params: settle(recipe, params, 1_350), lambda number, why: "refused-run")


def result(stopped: str | None = None, **changes: float) -> TrialResult:
    kept = (EpochResult(1, METRICS | {"epsilon": 5.0}), EpochResult(3, METRICS | changes))
    return TrialResult(METRICS | changes, Ledger(), {}, kept, stopped)
