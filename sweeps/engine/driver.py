"""The driver of a sweep: it owns the study, starts trials, and alone writes to the study and MLflow.

Ray Tune uses it as its searcher. Ray's own `OptunaSearch` leaves a trial RUNNING for ever if its last report holds a
NaN, and ends the sweep if an objective is missing from any report. Here the end of every trial is written to the study
exactly once, whatever it was.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import optuna
from ray.tune.search import Searcher

from sweeps.config.loading import write_yaml
from sweeps.config.target_epsilon import ConfigurationRefused, ResolvedTrial, resolve
from sweeps.engine.early_stopping import Stopper, rung_point
from sweeps.engine.progress import Progress
from sweeps.engine.prometheus import Meter
from sweeps.engine.recorder import Recorder
from sweeps.engine.session import Workers
from sweeps.engine.study import SHORT_BEFORE, Asker, set_outcome, tell_refusal
from sweeps.engine.trial import Message, Suggestion
from sweeps.engine.watch import notice
from sweeps.results.cost import Spent, over_budget
from sweeps.results.earlier import sweeps_in
from sweeps.store.picks import heading_of
from sweeps.store.prepared import Prepared
from sweeps.store.records import FEATURES, digests, number_of
from sweeps.store.study import back_up
from sweeps.store.sweep import Sweep
from sweeps.tracking.job_run import JobRun, corpus_inputs, open_refused_run, open_trial_run, trial_run_name
from sweeps.tracking.tracker import Tracker
from trainables.records.epochs import by_epoch, read_curve, read_ledger
from trainables.records.job import Outcome, Stop, TrialResult
from trainables.records.pareto import Metrics
from trainables.training.checkpoint import discard_checkpoint
from trainables.workers.client import SHORT_OF_MEMORY
from trainables.workers.job_queue import RETRIES

MAX_REFUSALS = 50
"""Refused configurations in a row that end the search: perhaps no configuration is within the ε budget."""
MAX_FAILURES = 10
"""Failed trials in a row that end the search: probably all of them fail for one reason."""
_START_S = 5.0
"""Seconds that Tune takes to start a process for a trial, at most."""


@dataclass
class _Trial:
    """A trial that has not ended."""

    suggestion: Suggestion
    asked: optuna.Trial
    judges: set[int] | None
    """Numbers of the trials that it is stopped by (`Stopper.after_epoch`)."""
    started: bool = False
    """True once its process runs."""
    queue: Any = None
    """The queue of its workers; None before it has some."""
    run: JobRun | None = None
    """The trial's MLflow run; None before it starts."""
    seen: set[int] = field(default_factory=set)
    """The epochs that it has reported."""
    outcome: Outcome | None = None
    left: bool = False
    """True if it was stopped before its end, so that `edp-sweep resume` continues it."""


class Driver(Searcher):
    """The owner of a sweep's trials.

    Args:
        units: training utterances of the corpus, or users if they are the unit.
        workers: stop all jobs at the end of their running epoch, and know how many trials may run at once now.
        stopper: judges each epoch; None: no trial is stopped early.
        lag: see `sweeps.engine.study.Asker`.
        meter: exports the trials' states and metrics.
    """

    def __init__(
        self,
        sweep: Sweep,
        study: optuna.Study,
        prepared: Prepared,
        units: int,
        workers: Workers,
        tracker: Tracker,
        progress: Progress,
        *,
        stopper: Stopper | None = None,
        lag: int | None = None,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(metric=None, mode=None)
        self._sweep, self._recipe, self._study, self._units = sweep, sweep.recipe, study, units
        self._workers, self._stopper, recipe = workers, stopper, sweep.recipe
        self._tracker, self._progress, self._meter = tracker, progress, meter
        self._recorder = Recorder(
            sweep.folder, recipe.baseline(), progress.say, parents=sweeps_in(recipe.search.points_from)
        )
        self._features = prepared.corpus / FEATURES
        self._inputs = corpus_inputs(recipe.baseline(), prepared.corpus, prepared.shadow, sweep)
        # The records are read once. Costs after that are added from the trials' reports.
        self._spent = Spent(sweep.records(study.get_trials(deepcopy=False)), sweep.record.baseline)
        self._asker = Asker(study, recipe, lag)
        self._trials: dict[str, _Trial] = {}
        self._processes = 0  # trials that have run at once, at most: each has a process under Tune
        self._ends = deque[float]()  # the times of the latest ends of trials
        self._failures: list[str] = []
        self._not_written: Exception | None = None
        self.stopped: str | None = None
        """The reason why trials were stopped before their end."""
        self.budget_spent: str | None = None
        """The message that the recipe's `budget` or `corpus.budget` is spent, after which no more trials start."""
        self.exhausted = False
        """True if all configurations of the space have run, after which no more trials start."""

    @property
    def gave_up(self) -> str | None:
        """The reasons of `MAX_FAILURES` failures in a row, with their counts, after which no more trials start."""
        if len(self._failures) < MAX_FAILURES:
            return None
        counts = Counter(self._failures).most_common()
        return f"{len(self._failures)} trials in a row failed: " + "; ".join(f"{n} x {why}" for why, n in counts)

    # Any: a dict or a string. Ray annotates `dict | None`, but documents FINISHED, a string, as an answer.
    def suggest(self, trial_id: str) -> Any:
        """Return the next trial to start under Tune's `trial_id`; None if none may start now, FINISHED if none will."""
        if not self._has_place():
            return None  # Tune asks again later
        if self.stopped is not None:
            return Searcher.FINISHED
        self.budget_spent = self.budget_spent or over_budget(self._spent.seconds, self._recipe)
        if self.gave_up is not None or self.budget_spent is not None:
            return Searcher.FINISHED
        if not self._asker.ready:
            return None
        for _ in range(MAX_REFUSALS):
            found = self._asker.ask()
            if found is None:
                self.exhausted = True
                break
            asked, params = found
            try:
                with notice("solving for the noise of a configuration", self._progress.say):
                    resolved = self._recorded(asked, resolve(self._recipe, params, self._units))
            except ConfigurationRefused as refusal:
                self._refuse(asked, refusal)
                if self.budget_spent is not None:
                    break
                continue
            suggestion = Suggestion(number_of(asked), resolved.params, resolved.spec)
            self._trials[trial_id] = _Trial(suggestion, asked, self._asker.known_to(suggestion.number))
            self._begin(suggestion)
            return {"suggestion": suggestion}
        return Searcher.FINISHED

    def _has_place(self) -> bool:
        """Return True if one more trial may run, and its process is one that is free or will be started in peace.

        A trial whose process is being started gets the next process that is free instead, and Tune then ends the new
        one. So more processes are asked for only if more are missing than trials end during a start.
        """
        now = time.monotonic()
        while self._ends and now - self._ends[0] > _START_S:
            self._ends.popleft()
        missing = self._workers.at_once() - sum(not trial.left for trial in self._trials.values())
        return missing > 0 and (len(self._trials) < self._processes or missing > len(self._ends))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Handle a message from the trial's process."""
        trial = self._known(trial_id)
        trial.started, number = True, trial.suggestion.number
        self._processes = max(self._processes, sum(one.started for one in self._trials.values()))
        message: Message = result["message"].pop()  # Tune keeps the last result of every trial
        match message:
            case "started", _:
                self._start(trial)
            case "queue", queue:
                trial.queue = queue
                self._workers.stop_signal.add(queue)
            case "epoch", (epoch, metrics):
                self._spent.hear(number, metrics)
                self._answer(trial, epoch, metrics)
                self._epoch(trial, epoch, metrics)
            case "news", news:
                self._progress.news(f"trial {number}", news)
            case "outcome", outcome:
                trial.outcome = outcome
            case "left", reason:
                self._leave(trial, reason)

    def _answer(self, trial: _Trial, epoch: int, metrics: Metrics) -> None:
        """Acknowledge an epoch at the trial's queue, where its workers wait, and say there whether it goes on."""
        number, reason = trial.suggestion.number, None
        if self._stopper is not None:
            point = rung_point(metrics, self._recipe.search.objectives)
            reason = self._stopper.after_epoch(number, epoch, point, trial.judges)
        if trial.queue is not None:
            stop = Stop(reason) if reason is not None else None
            trial.queue.acknowledge.remote(str(self._sweep.trial_folder(number)), epoch, stop)

    def send_due(self) -> None:
        """Send what running trials have told, and MLflow has waited for."""
        for trial in self._trials.values():
            if trial.run is not None:
                trial.run.send_due()

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """End a trial whose process has ended, or (`error`) died or raised more often than Tune retries.

        That process only passes on messages, so its death is not the trial's fault.
        """
        trial = self._known(trial_id)
        if trial.outcome is None and not trial.left:
            self._leave(trial, f"the process that reports on a trial died {RETRIES + 1} times; see Ray's logs")
        if trial.outcome is None:
            self._show(trial.suggestion.number, "interrupted")
            return
        del self._trials[trial_id]
        self._ends.append(time.monotonic())
        try:
            self._end(trial, trial.outcome)
        except Exception as error:
            self._not_written = error
            raise

    def _known(self, trial_id: str) -> _Trial:
        """Return a trial that has not ended. If an end could not be written, as on a full disk, raise that error again.

        Tune goes on after an error, and speaks of the trial once more.
        """
        if trial_id not in self._trials and self._not_written is not None:
            raise self._not_written
        return self._trials[trial_id]

    def _leave(self, trial: _Trial, reason: str) -> None:
        """Leave a trial to `resume`, and stop the others. It fails if the memory was too short before, too."""
        if reason == SHORT_OF_MEMORY:
            if SHORT_BEFORE in trial.asked.user_attrs:
                trial.outcome = reason
                return
            trial.asked.set_user_attr(SHORT_BEFORE, True)
        trial.left = True
        if trial.run is not None:
            trial.run.flush()
        self.stopped = self.stopped or reason
        self._workers.stop_signal.send(reason)

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles its searcher into snapshots that are never read; the study is the truth."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing, as `__getstate__`."""

    def _recorded(self, asked: optuna.Trial, resolved: ResolvedTrial) -> ResolvedTrial:
        """Return a trial after its begin is in the account.

        Raises:
            ConfigurationRefused: if the corpus' budget has no room. At a target ε there is none for any other trial.
        """
        number, folder = number_of(asked), self._sweep.trial_folder(number_of(asked))
        # The study, and its copy, know a trial before it has a folder.
        asked.set_user_attr("params", resolved.params)
        self._back_up()
        why = self._recorder.begin("trial", resolved.spec, units=self._units, folder=folder, part=f"trial {number}")
        if why is not None:
            self.budget_spent = why if self._recipe.target is not None else None
            raise ConfigurationRefused(why, resolved.params)
        return resolved

    def _refuse(self, asked: optuna.Trial, refusal: ConfigurationRefused) -> None:
        number = number_of(asked)
        run_id = open_refused_run(self._tracker, self._sweep, number, refusal.params, str(refusal))
        self._show(number, "refused", refusal.params, reason=str(refusal))
        tell_refusal(self._study, asked, refusal, run_id)

    def _begin(self, suggestion: Suggestion) -> None:
        """Write everything that `resume` needs if this process dies after this point."""
        heading = heading_of(self._sweep.name, suggestion.number, suggestion.spec.training.epochs)
        config = self._sweep.trial_folder(suggestion.number) / "config.yaml"
        write_yaml(suggestion.spec, config, f"{heading} Trains with: edp-sweep train config.yaml")
        self._show(suggestion.number, "waiting", suggestion.params)

    def _back_up(self) -> None:
        if self._recipe.search.study is None:  # another database has backups of its own
            back_up(self._study, self._sweep.study_copy)

    def _start(self, trial: _Trial) -> None:
        """Open the trial's MLflow run. A trial whose process died starts again, and continues its run."""
        if trial.run is not None:
            return
        s, run_id = trial.suggestion, None
        self._show(s.number, "running", s.params)
        if "retry_of" in trial.asked.user_attrs:
            run_id = self._tracker.find(self._sweep.record.run_id, trial_run_name(self._sweep, s.number))
        about = (s.number, s.params, s.spec, self._inputs, run_id)
        trial.run = open_trial_run(self._tracker, self._sweep, *about, at_once=False)
        if trial.run.run_id is not None:
            trial.asked.set_user_attr("run_id", trial.run.run_id)

    def _epoch(self, trial: _Trial, epoch: int, metrics: Metrics) -> None:
        """Track and show an epoch, unless it was reported before."""
        if epoch in trial.seen:  # a process that died may repeat epochs after its last checkpoint
            return
        trial.seen.add(epoch)
        if trial.run is not None:
            trial.run.epoch(epoch, metrics)
        if self._meter is not None:
            self._meter.epoch(metrics)
        self._progress.trial_epoch(trial.suggestion.number, epoch, metrics)

    def _end(self, trial: _Trial, outcome: Outcome) -> None:
        """Write a trial's end to the study, to its copy, and to MLflow."""
        number, asked = trial.suggestion.number, trial.asked
        folder, result = self._sweep.trial_folder(number), outcome if isinstance(outcome, TrialResult) else None
        ledger, curve = result.ledger if result else read_ledger(folder), read_curve(folder)
        if result:
            asked.set_user_attr("tags", result.tags)
        self._recorder.end(folder, ledger)
        asked.set_user_attr("digests", digests(folder, self._features))
        if result or curve:
            self._spent.hear(number, result.metrics if result else curve[-1])
        ended = set_outcome(asked, outcome, ledger, curve, self._recipe.search.objectives)
        self._failures = [*self._failures, ended.failure] if ended.failure is not None else []
        told = self._study.tell(asked, ended.values, state=ended.state)
        self._back_up()
        if result:
            discard_checkpoint(folder)
        if trial.run is not None:
            # An epoch that ended while this process or the trial's process died was not reported.
            trial.run.epochs({n: metrics for n, metrics in by_epoch(curve).items() if n not in trial.seen})
            trial.run.close(trial.suggestion.spec, folder, outcome, ended.name)
        if result:
            self._show(number, ended.name, metrics=result.metrics, reason=result.stopped or "")
        else:
            self._show(number, "failed", reason=str(outcome))
        self._progress.call_back(self._study, told)

    def _show(
        self,
        number: int,
        state: str,
        params: dict[str, Any] | None = None,
        metrics: Metrics | None = None,
        reason: str = "",
    ) -> None:
        if self._meter is not None:
            self._meter.trial(number, state, metrics)
        self._progress.trial(number, state, params, metrics, reason)
