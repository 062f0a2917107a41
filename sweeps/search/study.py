"""The Optuna study of a sweep: made, opened, and given its first points."""

from __future__ import annotations

import warnings

import optuna

from sweeps.recipes.recipe import Recipe
from sweeps.search.searcher import sampler
from sweeps.state.sweep import Sweep, study_storage


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
    had = {trial.user_attrs.get("guess") for trial in study.get_trials(deepcopy=False)}
    for i, params in enumerate(recipe.initial_points()):
        if i not in had:
            study.enqueue_trial(params, user_attrs={"guess": i})
