"""What the driver does as Tune's trials start, report and end: the one writer of study and MLflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna
from ray import tune

from sweeps.progress.live_table import Progress
from sweeps.recipes.loading import write_yaml
from sweeps.recipes.recipe import Recipe
from sweeps.search.searcher import Outcome, StudySearcher
from sweeps.state.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import close_trial_run, open_refused_run, open_trial_run
from trainables.records.epochs import by_epoch, read_curve
from trainables.records.job import TrialResult
from trainables.records.ledger_file import read_ledger
from trainables.training.checkpoint import discard_checkpoint


class SweepCallback(tune.Callback):
    """Tracks each trial once.

    Attributes:
        searcher: told how each trial ended.
        on_whole: told of each trial that MLflow has whole, and of its run.
        on_stop: told why a trial left off before its end.
    """

    def __init__(self, sweep: Sweep, recipe: Recipe, tracker: Tracker, progress: Progress) -> None:
        self.searcher: StudySearcher | None = None
        self.on_whole: Callable[[int, str], None] = lambda number, run_id: None
        self.on_stop: Callable[[str], None] = lambda reason: None
        self._sweep, self._recipe, self._tracker, self._progress = sweep, recipe, tracker, progress
        self._runs: dict[str, str | None] = {}
        self._trials: dict[str, optuna.Trial] = {}
        self._seen: dict[str, set[int]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._left: set[str] = set()
        self._failures: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks into snapshots that are never read, since the study is the truth."""
        return {}

    def suggested(self, trial_id: str, trial: optuna.Trial, params: dict[str, Any]) -> None:
        """The searcher has made a trial."""
        self._trials[trial_id] = trial
        self._seen[trial_id] = set()
        folder = self._sweep.trial_folder(trial.user_attrs.get("retry_of", trial.number))
        folder.mkdir(parents=True, exist_ok=True)
        write_yaml(self._recipe.trial(params), folder / "config.yaml", "Trains with: edp-sweep train config.yaml")
        self._progress.trial(trial.number, "waiting", params)

    def refused(self, trial: optuna.Trial, params: dict[str, Any], reason: str) -> str | None:
        """A configuration was refused: its run says why, and has no metrics. Returns the run's id."""
        run_id = open_refused_run(self._tracker, self._sweep, trial.number, params, reason)
        self._progress.trial(trial.number, "refused", params, reason=reason)
        return run_id

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Opens the trial's MLflow run."""
        if trial.trial_id in self._runs:
            return
        config, asked = trial.config, self._trials[trial.trial_id]
        self._progress.trial(config["number"], "running", config["params"])
        self._failures[trial.trial_id] = self._tracker.failures
        run_id = asked.user_attrs.get("run_id")
        if run_id is None and (first := asked.user_attrs.get("retry_of")) is not None:
            run_id = self._tracker.find(self._sweep.record.run_id, first)
        if run_id is not None:
            self._tracker.reopen(run_id)
        else:
            run_id = open_trial_run(self._tracker, self._sweep, self._recipe, config["number"], config["params"])
        if run_id is not None:
            asked.set_user_attr("run_id", run_id)
        self._runs[trial.trial_id] = run_id

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        """An epoch, the end, or what happened to the trial's workers."""
        if "outcome" in result:
            self._outcomes[trial.trial_id] = result["outcome"]
        elif "left" in result:
            self._left.add(trial.trial_id)
            self.on_stop(result["left"])
        elif "news" in result:
            self.show_news(self._trials[trial.trial_id].number, result["news"])
        else:
            self.on_epoch(trial.trial_id, result["epoch"], result["epoch_metrics"])

    def on_epoch(self, trial_id: str, epoch: int, metrics: dict[str, float]) -> None:
        """An epoch has ended; one that was heard of before is not counted again."""
        if epoch in self._seen[trial_id]:
            return
        self._seen[trial_id].add(epoch)
        self._tracker.log(self._runs[trial_id], metrics, epoch)
        self._progress.trial_epoch(self._trials[trial_id].number, epoch, metrics)

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tune is done with the trial."""
        if trial.trial_id in self._left:
            # Running for the study: whoever resumes the sweep goes on with it.
            self._progress.trial(self._trials[trial.trial_id].number, "interrupted")
            return
        self._end(trial.trial_id, self._outcomes.pop(trial.trial_id, "the trial ended without a result"))

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tune's process of the trial died or raised, more often than it may."""
        reason = self._outcomes.pop(trial.trial_id, None)
        self._end(trial.trial_id, reason or "the trial's process died; see Ray's logs")

    def _end(self, trial_id: str, outcome: Outcome) -> None:
        assert self.searcher is not None
        run_id, trial = self._runs.get(trial_id), self._trials[trial_id]
        number = trial.number
        folder = self._sweep.trial_folder(trial.user_attrs.get("retry_of", number))
        ledger = outcome.ledger if isinstance(outcome, TrialResult) else read_ledger(folder)
        if isinstance(outcome, TrialResult):
            trial.set_user_attr("tags", outcome.tags)
        curve = read_curve(folder)
        state = self.searcher.tell(trial_id, outcome, ledger, curve)
        if isinstance(outcome, TrialResult):
            discard_checkpoint(folder)
        if trial_id in self._runs:
            # Of an epoch that ended as the driver or the trial's process died, nobody was told.
            untold = {n: metrics for n, metrics in by_epoch(curve).items() if n not in self._seen[trial_id]}
            if untold:
                self._tracker.log_missing(run_id, untold)
            spec = self._recipe.trial(trial.user_attrs["params"])
            close_trial_run(self._tracker, run_id, spec, folder, outcome, state)
            if run_id is not None and self._tracker.failures == self._failures[trial_id]:
                self.on_whole(number, run_id)
        self.show_end(number, outcome, state)

    def show_news(self, number: int, line: str) -> None:
        """Something happened to a trial's workers."""
        if line == "started":
            self._progress.waits_no_more(f"trial {number}")
        else:
            self._progress.waits(f"trial {number}")
            self._progress.say(f"trial {number}: {line}")

    def show_end(self, number: int, outcome: Outcome, state: str) -> None:
        """A trial has ended."""
        if isinstance(outcome, TrialResult):
            self._progress.trial(number, state, metrics=outcome.metrics, reason=outcome.stopped or "")
        else:
            self._progress.trial(number, "failed", reason=outcome)
