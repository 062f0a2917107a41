"""The trials of a study: asked for, settled or refused, and told how they ended, each exactly once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import TrialState

from edp.ledger import Ledger
from sweeps.recipes.parts import objective_values
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.space import ask
from sweeps.recipes.target_epsilon import Refused, Settled
from sweeps.state.records import number_of
from trainables.records.job import TrialResult
from trainables.spec import TrialSpec

Outcome = TrialResult | str
"""A trial's result, or the reason why it has none."""

Keep = Callable[[optuna.Trial, TrialState, list[float] | None], None]

COST = "refused_epsilon"
"""Of a trial that was refused for its ε, that ε."""

_REFUSALS = 50
"""So many refused configurations in a row end the search: there may be nothing within the budget."""

_FAILURES = 10
"""So many failed trials in a row end the search: something is wrong with all of them."""


@dataclass(frozen=True)
class Suggestion:
    """A trial that may start."""

    number: int
    """Of the first try, where an earlier one was interrupted: from its folder's checkpoint the trial goes on."""
    params: dict[str, Any]
    spec: TrialSpec


class StudyTrials:
    """Asks and tells a study.

    Args:
        study: whose storage outlives this process.
        recipe: says what is searched, and for what.
        settle: completes a configuration, or raises `Refused`.
        track_refusal: hears of every refusal by the trial's number, and returns the id of the run that tracks it.
        enough: why no more trials may start, where that is so.
        keep: hears how a trial ended, just before the study does.

    Attributes:
        closed: what `enough` said, when it did.
    """

    def __init__(
        self,
        study: optuna.Study,
        recipe: Recipe,
        settle: Callable[[dict[str, Any]], Settled],
        track_refusal: Callable[[int, Refused], str | None] = lambda number, refusal: None,
        enough: Callable[[], str | None] = lambda: None,
        keep: Keep = lambda trial, state, values: None,
    ) -> None:
        self._study, self._space, self._shapes = study, recipe.dimensions, recipe.shapes
        self._objectives, self._secret = recipe.search.objectives, recipe.search.secret
        self._settle, self._track_refusal, self._enough, self._keep = settle, track_refusal, enough, keep
        self._asked: dict[str, optuna.Trial] = {}
        self._failures: list[str] = []
        self._stopping = False
        self.closed: str | None = None

    @property
    def gave_up(self) -> str | None:
        """Why nothing more is suggested, in one line with each reason counted; None while it is not so."""
        if len(self._failures) < _FAILURES or self._secret:
            return None  # to give up would tell of a secret number of candidates, and of what became of them
        counts = Counter(self._failures).most_common()
        return f"{len(self._failures)} trials in a row failed: " + "; ".join(f"{n} x {why}" for why, n in counts)

    def stop(self) -> None:
        """Suggests nothing more; Tune then waits for the trials that run."""
        self._stopping = True

    def ask(self, trial_id: str) -> Suggestion | None:
        """The next trial that may start, under a name of the caller's; None when there is none."""
        if self._stopping:
            return None
        self.closed = self.closed or self._enough()
        if self.gave_up is not None or self.closed is not None:
            return None
        for _ in range(_REFUSALS):
            trial = self._study.ask()
            try:
                settled = self._settle(ask(self._space, trial, self._shapes))
            except Refused as refusal:
                self._refuse(trial, refusal)
                continue
            trial.set_user_attr("params", settled.params)
            self._asked[trial_id] = trial
            return Suggestion(number_of(trial), settled.params, settled.spec)
        return None

    def trial(self, trial_id: str) -> optuna.Trial:
        """A trial that was asked for and not told yet."""
        return self._asked[trial_id]

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
            return self._failed(trial, outcome)
        values = objective_values(self._objectives, outcome.metrics)
        trial.set_user_attr("metrics", outcome.metrics)
        bad = [name for name, value in zip(self._objectives, values, strict=True) if not math.isfinite(value)]
        if bad:
            self._failures.append(f"{', '.join(bad)} is not finite")
            return self._failed(trial, self._failures[-1])
        self._failures.clear()
        trial.set_user_attr("points", [vars(epoch) for epoch in outcome.epochs if self._finite(epoch.metrics)])
        if outcome.stopped is not None:
            trial.set_user_attr("reason", outcome.stopped)
            trial.set_user_attr("state", "stopped")
            self._tell(trial, TrialState.PRUNED)
            return "stopped"
        self._tell(trial, TrialState.COMPLETE, values)
        return "complete"

    def _tell(self, trial: optuna.Trial, state: TrialState, values: list[float] | None = None) -> None:
        self._keep(trial, state, values)
        self._study.tell(trial, values, state=state)

    def _finite(self, metrics: dict[str, float]) -> bool:
        return all(math.isfinite(value) for value in objective_values(self._objectives, metrics))

    def _refuse(self, trial: optuna.Trial, refusal: Refused) -> None:
        trial.set_user_attr("params", refusal.params)
        trial.set_user_attr("state", "refused")
        trial.set_user_attr("run_id", self._track_refusal(number_of(trial), refusal))
        trial.set_user_attr("reason", str(refusal))
        if refusal.cost is not None:
            trial.set_user_attr(COST, refusal.cost)
        self._study.tell(trial, state=TrialState.FAIL)

    def _failed(self, trial: optuna.Trial, reason: str) -> str:
        trial.set_user_attr("reason", reason)
        self._tell(trial, TrialState.FAIL)
        return "failed"
