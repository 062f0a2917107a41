"""What is known of a sweep, its trials and their kept epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState
from pydantic import ConfigDict

from edp.ledger import Ledger
from edp.spec import Frozen
from sweeps.formatting.guarantee import measured
from trainables.records.epochs import epoch_folder, read_curve
from trainables.records.ledger_file import read_ledger


class SweepRecord(Frozen):
    """What a sweep's folder says of it, apart from its trials."""

    # The baseline's epsilon is infinite, which pydantic would otherwise write as null.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str
    recipe: str
    state: str
    tracking_uri: str
    run_id: str
    wanted: int
    pid: int
    baseline: dict[str, Any] | None = None
    baseline_run_id: str | None = None
    baseline_tracked: bool = False
    """Whether MLflow has the baseline whole."""
    error: str | None = None
    examples: int | None = None
    """Training utterances."""
    released_run_id: str | None = None
    """Of the one trial that a sweep with a secret number of trials releases."""


@dataclass(frozen=True)
class Point:
    """An epoch of a trial whose model was kept: a configuration trained for so long, as good as a trial of its own."""

    trial: int
    epoch: int
    """Epochs that were done: what `training.epochs` must be to train it again."""
    params: dict[str, Any]
    metrics: dict[str, float]
    """Of the test split, under the names of a trial's final metrics."""
    run_id: str | None
    folder: Path
    """Holds this epoch's `model.pt` and `ledger.json`."""
    ledger: Ledger | None
    last: bool = True
    """Whether it is its trial's last epoch."""

    @property
    def name(self) -> str:
        """The trial's number, and the epoch where it is not the last: `2`, `2@3`."""
        return str(self.trial) if self.last else f"{self.trial}@{self.epoch}"

    def public(self) -> dict[str, Any]:
        """What `--json` prints of a point."""
        return {
            "number": self.trial,
            "epoch": self.epoch,
            "params": self.params,
            **measured(self.metrics),
            "run_id": self.run_id,
        }


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the study knows it. `state`: running, complete, stopped (early, and measured), failed or refused."""

    number: int
    state: str
    params: dict[str, Any]
    metrics: dict[str, float]
    run_id: str | None
    reason: str | None
    ledger: Ledger | None
    folder: int
    """Number of the folder that holds its model: that of the trial it goes on from, if it was interrupted."""
    points: tuple[Point, ...] = ()
    """The kept epochs, the last one last."""
    curve: tuple[dict[str, float], ...] = ()
    """What each epoch reported, the first one first: losses, seconds, ε, and `valid_` metrics."""

    def public(self) -> dict[str, Any]:
        """What `--json` prints of a trial."""
        return {
            "number": self.number,
            "state": self.state,
            "params": self.params,
            **measured(self.metrics),
            "run_id": self.run_id,
            "reason": self.reason,
            "points": [{"epoch": point.epoch, **measured(point.metrics)} for point in self.points],
        }


def folder_number(trial: FrozenTrial) -> int:
    """Of the trial's folder: that of the trial it goes on from, if it was interrupted."""
    number: int = trial.user_attrs.get("retry_of", trial.number)
    return number


def trial_record(trial: FrozenTrial, folder: Path) -> TrialRecord:
    """A trial of the study, whose folder is `folder`."""
    attributes = trial.user_attrs
    state = attributes.get("state") or {
        TrialState.COMPLETE: "complete",
        TrialState.RUNNING: "running",
    }.get(trial.state, "failed")
    kept = attributes.get("ledger")
    # A trial that has not ended, or never will, has executed what its folder says all the same.
    ledger = Ledger.model_validate_json(kept) if kept else read_ledger(folder)
    curve = attributes.get("epochs") or read_curve(folder)
    shared = {"params": attributes.get("params", {}), "run_id": attributes.get("run_id")}
    epochs = attributes.get("points", [])
    points = [
        Point(
            trial=trial.number,
            epoch=point["epoch"],
            metrics=point["metrics"],
            folder=folder if point is epochs[-1] else epoch_folder(folder, point["epoch"]),
            ledger=ledger.until(point["epoch"]) if ledger is not None else None,
            last=point is epochs[-1],
            **shared,
        )
        for point in epochs
    ]
    return TrialRecord(
        number=trial.number,
        state=state,
        metrics=attributes.get("metrics", {}),
        reason=attributes.get("reason"),
        ledger=ledger,
        folder=folder_number(trial),
        points=tuple(points),
        curve=tuple(curve),
        **shared,
    )


def renamed(record: TrialRecord, number: int, run_id: str | None) -> TrialRecord:
    """The record under another number, its points too."""
    points = tuple(replace(point, trial=number, run_id=run_id) for point in record.points)
    return replace(record, number=number, run_id=run_id, points=points)
