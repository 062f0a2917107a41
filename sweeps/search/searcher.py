"""Optuna under Ray Tune: a searcher that asks a study for configurations and tells it how each trial ended.

Ray's own `OptunaSearch` leaves a trial RUNNING for ever when its last report holds a NaN, and ends the sweep when an
objective is missing from any report. Here the study hears of every trial's end exactly once, whatever it was.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from ray.tune.search import Searcher

from edp.ledger import Ledger
from sweeps.recipes.dimension import Space
from sweeps.recipes.parts import Objective, SearchSpec, objective_values
from sweeps.recipes.shapes import Shapes
from sweeps.recipes.space import ask
from sweeps.search.target_epsilon import Refused
from trainables.records.job import TrialResult


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


Outcome = TrialResult | str
"""A trial's result, or the reason why it has none."""

_REFUSALS = 50
"""So many refused configurations in a row end the search: there may be nothing within the budget."""

_FAILURES = 10
"""So many failed trials in a row end the search: something is wrong with all of them."""


class StudySearcher(Searcher):
    """Asks and tells.

    Args:
        study: whose storage outlives this process.
        space: what is searched.
        objectives: what is told.
        settle: completes a configuration, or raises `Refused`.
        on_suggest: hears of every suggestion, with Tune's id of the trial.
        on_refused: hears of every refusal, and returns the id of the run that tracks it.
        enough: why no more trials may start, where that is so.
        shapes: the recipe's (`sweeps.recipes.shapes`).

    Attributes:
        stopping: set to suggest nothing more; Tune then waits for the trials that run.
        closed: what `enough` said, when it did.
    """

    def __init__(
        self,
        study: optuna.Study,
        space: Space,
        objectives: tuple[Objective, ...],
        settle: Callable[[dict[str, Any]], dict[str, Any]],
        on_suggest: Callable[[str, optuna.Trial, dict[str, Any]], None],
        on_refused: Callable[[optuna.Trial, dict[str, Any], str], str | None],
        enough: Callable[[], str | None] = lambda: None,
        shapes: Shapes = (),
    ) -> None:
        super().__init__(metric=None, mode=None)
        self._study, self._space, self._objectives, self._shapes = study, space, objectives, shapes
        self._settle, self._on_suggest, self._on_refused = settle, on_suggest, on_refused
        self._asked: dict[str, optuna.Trial] = {}
        self._failures: list[str] = []
        self._enough = enough
        self.stopping = False
        self.closed: str | None = None

    @property
    def gave_up(self) -> str | None:
        """Why nothing more is suggested, in one line with each reason counted; None while it is not so."""
        if len(self._failures) < _FAILURES:
            return None
        counts = Counter(self._failures).most_common()
        return f"{len(self._failures)} trials in a row failed: " + "; ".join(f"{n} x {why}" for why, n in counts)

    # Any: a dict or a string. Ray annotates `dict | None`, though it documents FINISHED, a string, as an answer.
    def suggest(self, trial_id: str) -> Any:
        """The next configuration that may start; FINISHED when none is found."""
        if self.stopping:
            return str(Searcher.FINISHED)
        self.closed = self.closed or self._enough()
        if self.gave_up is not None or self.closed is not None:
            return str(Searcher.FINISHED)
        for _ in range(_REFUSALS):
            trial = self._study.ask()
            params = ask(self._space, trial, self._shapes)
            try:
                params = self._settle(params)
            except Refused as refusal:
                self._refuse(trial, refusal)
            else:
                break
        else:
            return str(Searcher.FINISHED)
        trial.set_user_attr("params", params)
        self._asked[trial_id] = trial
        self._on_suggest(trial_id, trial, params)
        # A trial that was interrupted goes on from the checkpoint in its first folder.
        folder = trial.user_attrs.get("retry_of", trial.number)
        return {"number": trial.number, "params": params, "folder": folder}

    def tell(self, trial_id: str, outcome: Outcome, ledger: Ledger | None, curve: list[dict[str, float]]) -> str:
        """Tells the study how a trial ended, what it executed and what its epochs came to, once.

        A complete trial is told its last epoch's values: what the sampler asked for is a configuration trained for all
        its epochs. One that was stopped early has no such values, and those of its last epoch would credit its
        configuration with a smaller ε than it costs: it is told as pruned. TPE then counts it among the worse ones,
        the other samplers pass over it; its kept epochs are candidates for the front all the same.

        Returns:
            complete, stopped or failed.
        """
        trial = self._asked.pop(trial_id)
        trial.set_user_attr("epochs", curve)
        if ledger is not None:
            trial.set_user_attr("ledger", ledger.model_dump_json())
        if isinstance(outcome, str):
            self._failures.append(outcome)
            return self._fail(trial, outcome)
        values = objective_values(self._objectives, outcome.metrics)
        trial.set_user_attr("metrics", outcome.metrics)
        bad = [name for name, value in zip(self._objectives, values, strict=True) if not math.isfinite(value)]
        if bad:
            self._failures.append(f"{', '.join(bad)} is not finite")
            return self._fail(trial, self._failures[-1])
        self._failures.clear()
        trial.set_user_attr("points", [vars(epoch) for epoch in outcome.epochs if self._finite(epoch.metrics)])
        if outcome.stopped is not None:
            trial.set_user_attr("reason", outcome.stopped)
            trial.set_user_attr("state", "stopped")
            self._study.tell(trial, state=TrialState.PRUNED)
            return "stopped"
        self._study.tell(trial, values)
        return "complete"

    def _finite(self, metrics: dict[str, float]) -> bool:
        return all(math.isfinite(value) for value in objective_values(self._objectives, metrics))

    def _refuse(self, trial: optuna.Trial, refusal: Refused) -> None:
        trial.set_user_attr("params", refusal.params)
        trial.set_user_attr("state", "refused")
        trial.set_user_attr("run_id", self._on_refused(trial, refusal.params, str(refusal)))
        self._fail(trial, str(refusal))

    def _fail(self, trial: optuna.Trial, reason: str) -> str:
        trial.set_user_attr("reason", reason)
        self._study.tell(trial, state=TrialState.FAIL)
        return "failed"

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Nothing to do: `tell` was called by the sweep's callback, which also knows why a trial ended."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as below: Tune pickles its searcher."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study's database is the truth."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""
