"""A trial's life, from its configuration to its end: the one writer of the study and of the trials' MLflow runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.trial import TrialState
from ray import tune

from sweeps.recipes.loading import write_yaml
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.target_epsilon import Refused, Settled, settle
from sweeps.results.cost import Spent, over_budget
from sweeps.run.bar import spoken_of
from sweeps.run.prepare import locate
from sweeps.run.progress import Progress
from sweeps.run.study_trials import Outcome, StudyTrials, Suggestion
from sweeps.state.picks import heading_of
from sweeps.state.records import number_of
from sweeps.state.sweep import Sweep
from sweeps.state.trial_file import FEATURES, digests, keep_trial
from sweeps.tracking.backfill import Tracked
from sweeps.tracking.corpus_inputs import corpus_inputs
from sweeps.tracking.job_run import JobRun
from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import open_refused_run, open_trial_run
from trainables.records.epochs import by_epoch, read_curve
from trainables.records.job import TrialResult
from trainables.records.ledger_file import begin_folder, read_ledger
from trainables.training.checkpoint import discard_checkpoint


@dataclass
class _Life:
    """What is known of a trial that has not ended."""

    suggestion: Suggestion
    run: JobRun | None = None
    """None until it has started."""
    seen: set[int] = field(default_factory=set)
    """Epochs that were heard of."""
    outcome: Outcome | None = None
    left: bool = False
    """Whether it was stopped before its end: whoever resumes the sweep goes on with it."""


class TrialLife(tune.Callback):
    """Owns the trials of a sweep: Tune's searcher asks it, and Tune tells it what happens.

    Args:
        units: training utterances of the corpus, or users where they are the unit.
        stop_signal: an actor that stops all jobs at the end of their running epoch.
    """

    def __init__(
        self,
        sweep: Sweep,
        recipe: Recipe,
        study: optuna.Study,
        units: int,
        tracker: Tracker,
        progress: Progress,
        stop_signal: Any,
    ) -> None:
        self._sweep, self._recipe = sweep, recipe
        self._tracker, self._progress, self._stop_signal = tracker, progress, stop_signal
        prepared = locate(recipe.baseline(), sweep.cache)
        self._features = prepared.corpus / FEATURES
        self._inputs = corpus_inputs(recipe.baseline(), prepared.corpus, prepared.shadow)

        def settled(params: dict[str, Any]) -> Settled:
            with spoken_of("solving for what ε allows of a configuration", progress.say):
                return settle(recipe, params, units)

        self.trials = StudyTrials(study, recipe, settled, self._track_refusal, self._over_budget, self._keep)
        # Once: what follows is heard of.
        self._spent = Spent(sweep.records(study.get_trials(deepcopy=False)), sweep.record.baseline)
        self.stopped: str | None = None
        """Why trials left off before their end."""
        self._lives: dict[str, _Life] = {}
        self._whole = Tracked(sweep)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks into snapshots that are never read, since the study is the truth."""
        return {}

    @property
    def running(self) -> int:
        """Trials that have started, or wait for their workers, and have neither ended nor been left."""
        return sum(not life.left for life in self._lives.values())

    def ask(self, trial_id: str) -> Suggestion | None:
        """The next trial that may start; None when there is none."""
        suggestion = self.trials.ask(trial_id)
        if suggestion is not None:
            self._lives[trial_id] = _Life(suggestion)
            folder = self._sweep.trial_folder(suggestion.number)
            begin_folder(folder)
            # Of a secret number of trials the released one is called 0: its own would tell how many came before.
            number = 0 if self._recipe.search.secret else suggestion.number
            heading = heading_of(self._sweep.name, number, suggestion.spec.training.epochs)
            write_yaml(suggestion.spec, folder / "config.yaml", f"{heading} Trains with: edp-sweep train config.yaml")
            self._keep(self.trials.trial(trial_id), TrialState.RUNNING)
            self._progress.trial(suggestion.number, "waiting", suggestion.params)
        return suggestion

    def on_trial_start(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Opens the trial's MLflow run."""
        life = self._lives[trial.trial_id]
        if life.run is not None:
            return
        s = life.suggestion
        self._progress.trial(s.number, "running", s.params)
        asked = self.trials.trial(trial.trial_id)
        run_id = asked.user_attrs.get("run_id")
        if run_id is None and "retry_of" in asked.user_attrs:
            run_id = self._tracker.find(self._sweep.record.run_id, "trial", s.number)
        life.run = open_trial_run(self._tracker, self._sweep, s.number, s.params, s.spec, self._inputs, run_id)
        if life.run.run_id is not None:
            asked.set_user_attr("run_id", life.run.run_id)

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **info: Any) -> None:
        """An epoch, the end, or what happened to the trial's workers."""
        life = self._lives[trial.trial_id]
        if "outcome" in result:
            life.outcome = result["outcome"]
        elif "left" in result:
            life.left = True
            self._stop(result["left"])
        elif "news" in result:
            self._progress.news(f"trial {life.suggestion.number}", result["news"])
        else:
            self._spent.hear(life.suggestion.number, result["epoch_metrics"])
            self._on_epoch(life, result["epoch"], result["epoch_metrics"])

    def on_trial_complete(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tune is done with the trial."""
        life = self._lives[trial.trial_id]
        if life.left:
            self._progress.trial(life.suggestion.number, "interrupted")
        else:
            self._end(trial.trial_id, life.outcome or "the trial ended without a result")

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **info: Any) -> None:
        """Tune's process of the trial died or raised, more often than it may."""
        self._end(trial.trial_id, self._lives[trial.trial_id].outcome or "the trial's process died; see Ray's logs")

    def _track_refusal(self, number: int, refusal: Refused) -> str | None:
        run_id = open_refused_run(self._tracker, self._sweep, number, refusal.params, str(refusal))
        self._progress.trial(number, "refused", refusal.params, reason=str(refusal))
        return run_id

    def _keep(self, trial: optuna.Trial, state: TrialState, values: list[float] | None = None) -> None:
        keep_trial(trial, self._sweep.trial_folder(number_of(trial)), state, values)

    def _over_budget(self) -> str | None:
        return over_budget(self._spent.seconds, self._recipe)

    def _stop(self, reason: str) -> None:
        self.trials.stop()
        self.stopped = self.stopped or reason
        self._stop_signal.send.remote(reason)

    def _on_epoch(self, life: _Life, epoch: int, metrics: dict[str, float]) -> None:
        """An epoch has ended; one that was heard of before is not counted again."""
        if epoch in life.seen:
            return
        life.seen.add(epoch)
        if life.run is not None:
            life.run.epoch(epoch, metrics)
        self._progress.trial_epoch(life.suggestion.number, epoch, metrics)

    def _end(self, trial_id: str, outcome: Outcome) -> None:
        life, trial = self._lives.pop(trial_id), self.trials.trial(trial_id)
        folder = self._sweep.trial_folder(life.suggestion.number)
        ledger = outcome.ledger if isinstance(outcome, TrialResult) else read_ledger(folder)
        if isinstance(outcome, TrialResult):
            trial.set_user_attr("tags", outcome.tags)
        trial.set_user_attr("digests", digests(folder, self._features))
        curve = read_curve(folder)
        if isinstance(outcome, TrialResult) or curve:
            self._spent.hear(life.suggestion.number, outcome.metrics if isinstance(outcome, TrialResult) else curve[-1])
        state = self.trials.tell(trial_id, outcome, ledger, curve)
        if isinstance(outcome, TrialResult):
            discard_checkpoint(folder)
        if life.run is not None:
            # Of an epoch that ended as the driver or the trial's process died, nobody was told.
            life.run.epochs({n: metrics for n, metrics in by_epoch(curve).items() if n not in life.seen})
            life.run.close(life.suggestion.spec, folder, outcome, state)
            if life.run.run_id is not None and life.run.whole:
                self._whole.add(life.suggestion.number, life.run.run_id)
        self._show_end(life.suggestion.number, outcome, state)

    def _show_end(self, number: int, outcome: Outcome, state: str) -> None:
        if isinstance(outcome, TrialResult):
            self._progress.trial(number, state, metrics=outcome.metrics, reason=outcome.stopped or "")
        else:
            self._progress.trial(number, "failed", reason=outcome)
