"""The MLflow run of one job, from its opening to its end: a trial, the baseline, a training of `train` or `confirm`, a
pretraining."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mlflow.entities import DatasetInput

from sweeps.formatting.figures import metrics_line, privacy_statement
from sweeps.search.study_trials import Outcome
from sweeps.tracking.run_tags import NOTE
from sweeps.tracking.tracker import Tracker
from trainables.records.job import TrialError, TrialResult, TrialStopped
from trainables.records.pareto import Metrics
from trainables.spec import TrialSpec

ARTIFACTS = ("ledger.json", "config.yaml", "model.pt")

PLAIN = "no formal guarantee (plain SGD)"


class JobRun:
    """A run that is open. A `with` block that raises ends it: KILLED where the job was stopped, FAILED where it failed.

    Args:
        failures: the tracker's, before the run was opened.

    Attributes:
        run_id: None where the store did not take the run.
    """

    def __init__(self, tracker: Tracker, run_id: str | None, failures: int) -> None:
        self.tracker, self.run_id, self._failures = tracker, run_id, failures

    @property
    def whole(self) -> bool:
        """Whether the store has taken the run and all that it was told since it was opened."""
        return self.run_id is not None and self.tracker.failures == self._failures

    def epoch(self, epoch: int, metrics: Metrics) -> None:
        """An epoch has ended."""
        self.tracker.log(self.run_id, metrics, epoch)

    def epochs(self, metrics: Mapping[int, Metrics]) -> None:
        """Epochs that have ended, of which the run may hold some already."""
        if metrics:
            self.tracker.log_missing(self.run_id, metrics)

    def close(
        self,
        spec: TrialSpec,
        folder: Path,
        outcome: Outcome,
        state: str = "complete",
        artifacts: tuple[str, ...] = ARTIFACTS,
        *,
        told_before: bool = False,
    ) -> None:
        """Final metrics of the kept epochs, each at its own step, artifacts and state of a training.

        Args:
            folder: the training's own.
            outcome: its result; a string says why it failed.
            artifacts: files of `folder` that go along, where they exist.
            told_before: whether the run may hold some of it already.
        """
        if isinstance(outcome, TrialResult):
            self._result(spec, outcome, told_before)
        else:
            self.tracker.tag(self.run_id, {"reason": outcome})
            artifacts = ("ledger.json",)
        for name in artifacts:
            self.files([folder / name], "model" if name == "model.pt" else None)
        self.end({"state": state}, "FAILED" if state == "failed" else "FINISHED")

    def _result(self, spec: TrialSpec, result: TrialResult, told_before: bool) -> None:
        last = result.epochs[-1].epoch if result.epochs else spec.training.epochs
        steps = {kept.epoch: kept.metrics for kept in result.epochs[:-1]} | {last: result.metrics}
        if told_before:
            self.epochs(steps)
        else:
            for step, metrics in steps.items():
                self.epoch(step, metrics)
        early = {"reason": result.stopped} if result.stopped else {}
        privacy = privacy_statement(result.metrics, spec.edp) if spec.training.method != "sgd" else PLAIN
        note = f"{metrics_line(result.metrics)}.\n\n{spec.training.method}, {spec.training.epochs} epochs. {privacy}."
        self.tracker.tag(self.run_id, result.tags | early | {"privacy": privacy, NOTE: note})

    def files(self, files: Iterable[Path], folder: str | None = None) -> None:
        """Copies files to the run's artifacts, below `folder` there, where they exist."""
        for file in files:
            self.tracker.artifact(self.run_id, file, folder)

    def end(self, tags: Mapping[str, str], status: str = "FINISHED") -> None:
        """Its last tags, `state` among them, and its end: FINISHED, FAILED or KILLED."""
        self.tracker.tag(self.run_id, tags)
        self.tracker.end(self.run_id, status)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        stopped = isinstance(error, TrialStopped | KeyboardInterrupt | SystemExit)
        reason = {"reason": str(error)} if isinstance(error, TrialError) else {}
        self.end({"state": "stopped" if stopped else "failed", **reason}, "KILLED" if stopped else "FAILED")


def open_job(
    tracker: Tracker,
    name: str,
    *,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    parent: str | None = None,
    note: str | None = None,
    inputs: Sequence[DatasetInput] = (),
    run_id: str | None = None,
) -> JobRun:
    """Opens the run of a job, or goes on with `run_id`.

    Args:
        parent: id of the run that it stands below.
        note: its description, in Markdown.
        inputs: the corpora that it reads.
    """
    failures = tracker.failures
    if run_id is not None:
        tracker.reopen(run_id)
    else:
        run_id = tracker.start(name, params=params, tags=tags, parent=parent, note=note)
        if inputs:
            tracker.inputs(run_id, inputs)
    return JobRun(tracker, run_id, failures)
