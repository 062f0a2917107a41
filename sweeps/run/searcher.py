"""Optuna under Ray Tune: a searcher that asks whoever owns the trials, and the sampler of a recipe.

Ray's own `OptunaSearch` leaves a trial RUNNING for ever when its last report holds a NaN, and ends the sweep when an
objective is missing from any report. Here the study hears of every trial's end exactly once, whatever it was, from
`sweeps.run.study_trials`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from ray.tune.search import Searcher

from sweeps.recipes.parts import SearchSpec
from sweeps.run.study_trials import Suggestion


def sampler(search: SearchSpec, known: int = 0) -> BaseSampler:
    """The recipe's sampler, seeded.

    Args:
        known: trials that the study has already. A sampler that starts anew must not start from the same numbers.
    """
    startup = min(10, max(2, search.trials // 3))
    seed = search.seed if known == 0 else int(np.random.SeedSequence([search.seed, known]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match search.sampler:
            case "tpe":
                return TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, group=True)
            case "nsga2":
                return NSGAIISampler(seed=seed, population_size=max(4, min(50, search.trials // 3)))
            case "gp":
                return GPSampler(seed=seed, n_startup_trials=startup)
            case "random":
                return RandomSampler(seed=seed)
            case "random_stopping":
                return RandomSampler()  # from the operating system's entropy: nobody may foresee the candidates


class StudySearcher(Searcher):
    """The searcher that Tune asks. It only passes questions on: results reach the study through `TrialLife`.

    Args:
        ask: the next configuration of the trial that Tune calls by this id; None when there is none.
        room: whether one more trial may start now.
    """

    def __init__(self, ask: Callable[[str], Suggestion | None], room: Callable[[], bool] = lambda: True) -> None:
        super().__init__(metric=None, mode=None)
        self._ask, self._room = ask, room

    # Any: a dict or a string. Ray annotates `dict | None`, though it documents FINISHED, a string, as an answer.
    def suggest(self, trial_id: str) -> Any:
        """The next configuration that may start; None when none may now, FINISHED when none is found."""
        if not self._room():
            return None  # Tune asks again
        suggestion = self._ask(trial_id)
        return str(Searcher.FINISHED) if suggestion is None else {"suggestion": suggestion}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Nothing to do: whoever owns the trials hears of their ends, and knows why they ended."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as below: Tune pickles its searcher."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study's database is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""
