"""The Optuna study of a sweep: made, opened, and given its first points."""

from __future__ import annotations

import warnings
from typing import Any

import optuna
from optuna.trial import TrialState

from sweeps.recipes.recipe import Recipe
from sweeps.run.searcher import sampler
from sweeps.state.study import study_storage
from sweeps.state.sweep import Sweep

INITIAL_POINT = "initial_point"
"""Attribute of a trial: which of the initial points it was."""
_INITIAL_POINT = (INITIAL_POINT, "guess")
"""Its names, the one of studies of before 2026-11-25 too."""


def open_study(sweep: Sweep, recipe: Recipe) -> optuna.Study:
    """The study of a sweep, created when it is new, with the search's first points. Only the driver writes to it.

    Raises:
        UserError: when its database cannot be opened.
    """
    study = optuna.create_study(
        study_name=sweep.study_name(recipe),
        storage=study_storage(sweep.study_url(recipe)),
        directions=["minimize"] * len(recipe.search.objectives),
        load_if_exists=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(recipe.search.objectives))  # for optuna-dashboard
    study.sampler = sampler(recipe.search, len(study.get_trials(deepcopy=False)))
    enqueue_initial_points(study, recipe)
    return study


def enqueue_initial_points(study: optuna.Study, recipe: Recipe) -> None:
    """Makes the initial points the study's first trials; those that it has had stay as they are."""
    had = {trial.user_attrs.get(name) for trial in study.get_trials(deepcopy=False) for name in _INITIAL_POINT}
    for i, params in enumerate(recipe.initial_points()):
        if i not in had:
            study.enqueue_trial(params, user_attrs={INITIAL_POINT: i})


def requeue_interrupted(study: optuna.Study) -> int:
    """Hands trials that were running when a sweep stopped back to the study; returns how many have ended.

    A stopped trial is told as failed, and its configuration is the next one that the study suggests.
    """
    trials = study.get_trials(deepcopy=False)
    waiting = {trial.user_attrs.get("retry_of") for trial in trials if trial.state == TrialState.WAITING}
    ended = 0
    for trial in trials:
        if trial.state == TrialState.RUNNING:
            first = trial.user_attrs.get("retry_of", trial.number)
            # Enqueued first: whoever dies between the two finds the trial running, and its successor waiting.
            if first not in waiting:
                kept: dict[str, Any] = {k: v for k, v in trial.user_attrs.items() if k in ("run_id", *_INITIAL_POINT)}
                # A queued trial has no values of its own until it is asked for them; Optuna keeps what was queued.
                queued = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
                study.enqueue_trial(queued, user_attrs={**kept, "retry_of": first})
            study._storage.set_trial_user_attr(trial._trial_id, "state", "interrupted")
            study.tell(trial.number, state=TrialState.FAIL)
        elif trial.state.is_finished() and trial.user_attrs.get("state") not in ("interrupted", "refused"):
            ended += 1
    return ended
