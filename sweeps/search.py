"""Optuna under Ray Tune: a searcher that asks a study for configurations and tells it how each trial ended.

Ray's own `OptunaSearch` leaves a trial RUNNING for ever when its last report holds a NaN, and ends the sweep when an
objective is missing from any report. Here the study hears of every trial's end exactly once, whatever it was.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from ray.tune.search import Searcher

from sweeps.space import Space, ask
from sweeps.spec import Objective, SearchSpec, objective_values
from trainables.worker import TrialResult


def sampler(search: SearchSpec) -> BaseSampler:
    """The recipe's sampler, seeded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match search.sampler:
            case "tpe":
                return TPESampler(
                    seed=search.seed,
                    n_startup_trials=min(10, max(2, search.trials // 3)),
                    multivariate=True,
                    group=True,
                )
            case "nsga2":
                return NSGAIISampler(seed=search.seed, population_size=max(4, min(50, search.trials // 3)))
            case "gp":
                return GPSampler(seed=search.seed)
            case "random":
                return RandomSampler(seed=search.seed)


Outcome = TrialResult | str
"""A trial's result, or the reason why it has none."""


class StudySearcher(Searcher):
    """Asks and tells.

    Args:
        study: whose storage outlives this process.
        space: what is searched.
        objectives: what is told.
        on_suggest: hears of every suggestion, with Tune's id of the trial.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        objectives: tuple[Objective, ...],
        on_suggest: Callable[[str, optuna.Trial, dict[str, Any]], None],
    ) -> None:
        super().__init__(metric=None, mode=None)
        self._study, self._space, self._objectives = study, space, objectives
        self._on_suggest = on_suggest
        self._asked: dict[str, optuna.Trial] = {}

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """The next configuration."""
        trial = self._study.ask()
        params = ask(self._space, trial)
        trial.set_user_attr("params", params)
        self._asked[trial_id] = trial
        self._on_suggest(trial_id, trial, params)
        return {"number": trial.number, "params": params}

    def tell(self, trial_id: str, outcome: Outcome, run_id: str | None, epochs: list[dict[str, float]]) -> bool:
        """Tells the study how a trial ended; True if it is complete."""
        trial = self._asked.pop(trial_id)
        trial.set_user_attr("run_id", run_id)
        trial.set_user_attr("epochs", epochs)
        if isinstance(outcome, str):
            return self._fail(trial, outcome)
        trial.set_user_attr("ledger", outcome.ledger.model_dump_json())
        values = objective_values(self._objectives, outcome.metrics)
        trial.set_user_attr("metrics", outcome.metrics)
        bad = [name for name, value in zip(self._objectives, values, strict=True) if not math.isfinite(value)]
        if bad:
            return self._fail(trial, f"{', '.join(bad)} is not finite")
        self._study.tell(trial, values)
        return True

    def _fail(self, trial: optuna.Trial, reason: str) -> bool:
        trial.set_user_attr("reason", reason)
        self._study.tell(trial, state=TrialState.FAIL)
        return False

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Nothing to do: `tell` was called by the sweep's callback, which also knows why a trial ended."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as below: Tune pickles its searcher."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study's database is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""
