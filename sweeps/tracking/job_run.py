"""The MLflow run of one training that is waited for: baseline, `train`, `confirm`. Its end is told whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweeps.tracking.tracker import Tracker
from sweeps.tracking.trial_runs import ARTIFACTS, close_trial_run
from trainables.records.job import TrialError, TrialResult, TrialStopped
from trainables.records.pareto import Metrics
from trainables.spec import TrialSpec


@dataclass(frozen=True)
class JobRun:
    """What is told of a training while it runs, and when it has ended.

    Attributes:
        run_id: None where the store did not take the run.
    """

    tracker: Tracker
    run_id: str | None
    spec: TrialSpec

    def epoch(self, epoch: int, metrics: Metrics) -> None:
        """An epoch has ended."""
        self.tracker.log(self.run_id, metrics, epoch)

    def close(self, result: TrialResult, folder: Path, artifacts: tuple[str, ...] = ARTIFACTS) -> None:
        """The result, and those files of the training's folder that are to stay with it."""
        close_trial_run(self.tracker, self.run_id, self.spec, folder, result, "complete", artifacts=artifacts)


@contextmanager
def job_run(tracker: Tracker, run_id: str | None, spec: TrialSpec) -> Iterator[JobRun]:
    """Ends the run with the block: KILLED where the training was stopped, FAILED where it failed, with the reason."""
    try:
        yield JobRun(tracker, run_id, spec)
    except BaseException as error:
        stopped = isinstance(error, TrialStopped | KeyboardInterrupt | SystemExit)
        reason = {"reason": str(error)} if isinstance(error, TrialError) else {}
        tracker.tag(run_id, {"state": "stopped" if stopped else "failed", **reason})
        tracker.end(run_id, "KILLED" if stopped else "FAILED")
        raise
