"""A sweep's study, and trials that are told to it without being trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
from optuna.trial import TrialState
from rich.console import Console

from edp.ledger import Ledger
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.engine.driver import Driver
from sweeps.engine.early_stopping import Stopper
from sweeps.engine.progress import Progress
from sweeps.engine.study import open_study
from sweeps.engine.trial import Suggestion
from sweeps.store.prepared import locate
from sweeps.store.records import SweepRecord
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import digests_of
from sweeps.tracking.tracker import Tracker
from trainables.records.epochs import LEDGER, write_curve, write_ledger
from trainables.records.job import EpochResult, Outcome, TrialResult
from trainables.workers.job_queue import StopSignal

RECIPE = load_recipe("quickstart_paper", [])[1]
"""Of points that are made up."""

METRICS = {"ser": 0.5, "mia_auc": 0.5, "epsilon": 10.0, "epsilon_paper": 5.0, "delta": 5e-4, "trial_seconds": 9.0}


def sweep(storage: Path, *settings: str) -> tuple[Sweep, Recipe]:
    recipe = load_recipe("quickstart_paper", list(settings))[1]
    return sweep_of(recipe, storage), recipe


def sweep_of(recipe: Recipe, storage: Path) -> Sweep:
    made = Sweep.new(storage, "one")
    made.save_recipe(recipe)
    record = {"recipe": "quickstart_paper", "state": "running", "tracking_uri": "", "run_id": "0123456789", "wanted": 8}
    made.save(SweepRecord.model_validate({"name": "one", "pid": 1, "settings": digests_of(recipe), **record}))
    return made


class NoTracker(Tracker):
    """Sends nothing.

    Args:
        takes_runs: whether runs get made-up ids; else they get none, as from a store that does not answer.
    """

    def __init__(self, *, takes_runs: bool = True) -> None:
        self.started: list[str] = []
        """The runs' names."""
        self.failures = 0
        self._takes_runs = takes_runs

    def start(self, name: str, **about: Any) -> str | None:
        self.started.append(name)
        return ("refused-run" if "refused" in name else "run") if self._takes_runs else None

    def log(self, run_id: str | None, *figures: Any, **more: Any) -> None:
        """Nothing to send."""

    def end(self, run_id: str | None, status: str = "FINISHED") -> None:
        """Nothing to end."""

    def _on_run(self, run_id: str | None, send: Callable[[str], object]) -> None:
        """Nothing to send."""

    def _sent(self, send: Callable[[], Any]) -> Any:
        """Nothing to send."""


def driver(
    made: Sweep,
    recipe: Recipe,
    *,
    study: optuna.Study | None = None,
    tracker: Tracker | None = None,
    progress: Progress | None = None,
    units: int = 1_350,
    max_running: Callable[[], int] = lambda: 1_000,
    stop_signal: StopSignal | None = None,
    stopper: Stopper | None = None,
) -> Driver:
    """The driver of a sweep whose jobs do not run."""
    workers: Any = SimpleNamespace(stop_signal=stop_signal or StopSignal(), at_once=max_running)
    return Driver(
        made,
        study or open_study(made, recipe),
        locate(recipe.baseline(), made.cache),
        units,
        workers,
        tracker or NoTracker(takes_runs=False),
        progress or Progress(Console(quiet=True)),
        stopper=stopper,
    )


class ToldTrials:
    """Trials that a driver suggests, and whose ends it is told without a training."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def ask(self, trial_id: str) -> Suggestion | None:
        answer = self.driver.suggest(trial_id)
        return answer["suggestion"] if isinstance(answer, dict) else None

    def tell(self, trial_id: str, outcome: Outcome, ledger: Ledger | None, curve: list[dict[str, float]]) -> str:
        """End a trial that has left this ledger and this curve; return complete, stopped or failed."""
        trial = self.driver._trials[trial_id]
        folder = self.driver._sweep.trial_folder(trial.suggestion.number)
        if ledger is not None:
            write_ledger(ledger, folder)
        else:
            (folder / LEDGER).unlink(missing_ok=True)
        write_curve(curve, folder)
        self.driver.on_trial_result(trial_id, {"message": [("outcome", outcome)]})
        self.driver.on_trial_complete(trial_id)
        state = self.driver._study.get_trials(deepcopy=False)[trial.asked.number].state
        return {TrialState.COMPLETE: "complete", TrialState.PRUNED: "stopped"}.get(state, "failed")


def trials(made: Sweep, recipe: Recipe, **about: Any) -> ToldTrials:
    return ToldTrials(driver(made, recipe, **{"tracker": NoTracker(), **about}))


def result(stopped: str | None = None, **changes: float) -> TrialResult:
    kept = (EpochResult(1, METRICS | {"epsilon": 5.0}), EpochResult(3, METRICS | changes))
    return TrialResult(METRICS | changes, Ledger(), {}, kept, stopped)
