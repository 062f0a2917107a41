"""Resending to MLflow: everything that it lacks of a sweep, from the study and the sweep's folder."""

from __future__ import annotations

import json
from typing import Any

from mlflow.entities import DatasetInput

from sweeps.config.recipe import Recipe
from sweeps.store.records import TrialRecord, number_of
from sweeps.store.sweep import Sweep
from sweeps.tracking.job_run import open_refused_run, open_trial_run, trial_run_name
from sweeps.tracking.tracker import Tracker
from trainables.records.epochs import by_epoch
from trainables.records.files import atomic_write
from trainables.records.job import EpochResult, TrialResult


class SyncedRuns:
    """The trials that MLflow has completely, as the sweep's folder records them. Only the sweep's driver adds to it."""

    def __init__(self, sweep: Sweep) -> None:
        self._path = sweep.folder / "tracked.json"
        self.runs = sweep.synced_runs()
        """Run ids by trial number."""

    def add(self, number: int, run_id: str) -> None:
        """Record that MLflow has this trial completely."""
        self.runs[number] = run_id
        with atomic_write(self._path) as partial:
            partial.write_text(json.dumps(self.runs))


def send_missing(
    sweep: Sweep, recipe: Recipe, tracker: Tracker, trials: list[TrialRecord], inputs: list[DatasetInput]
) -> int:
    """Send every ended trial that MLflow does not have completely, without repeating what its run has.

    Args:
        inputs: the corpora, for runs that are created now.

    Returns:
        The number of trials that MLflow still lacks.
    """
    synced, left = SyncedRuns(sweep), 0
    # The last try of a number counts: the ones before it were interrupted.
    attributes = {number_of(trial): trial.user_attrs for trial in sweep.told(recipe)}
    for trial in trials:
        if trial.number in synced.runs or trial.state == "running" or "params" not in attributes[trial.number]:
            continue
        before = tracker.failures
        run_id = _send(sweep, tracker, trial, attributes[trial.number], inputs)
        if run_id is not None and tracker.failures == before:
            synced.add(trial.number, run_id)
        else:
            left += 1
    return left


def _send(
    sweep: Sweep, tracker: Tracker, trial: TrialRecord, attributes: dict[str, Any], inputs: list[DatasetInput]
) -> str | None:
    """Send one trial; return the id of its run, None if MLflow did not take it."""
    refused = " refused" if trial.state == "refused" else ""
    name = f"{trial_run_name(sweep, trial.number)}{refused}"
    run_id = trial.run_id or tracker.find(sweep.record.run_id, name)
    if refused:
        return run_id or open_refused_run(tracker, sweep, trial.number, trial.params, trial.reason or "")
    spec, folder = trial.spec, sweep.trial_folder(trial.number)
    run = open_trial_run(tracker, sweep, trial.number, trial.params, spec, inputs, run_id)
    curve: list[dict[str, float]] = attributes.get("epochs", [])
    run.epochs(by_epoch(curve))
    outcome: TrialResult | str = trial.reason or "failed"
    if trial.state in ("complete", "stopped") and trial.ledger is not None:
        kept = tuple(EpochResult(point.epoch, point.metrics) for point in trial.points)
        stopped = trial.reason if trial.state == "stopped" else None
        outcome = TrialResult(trial.metrics, trial.ledger, attributes.get("tags", {}), kept, stopped)
    run.close(spec, folder, outcome, trial.state, told_before=True)
    return run.run_id
