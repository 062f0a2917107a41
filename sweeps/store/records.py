"""Records of a sweep, its trials and their kept epochs, read from the study and the trials' folders."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edp.ledger import Ledger
from edp.spec import Frozen
from sweeps.config.recipe import Recipe
from sweeps.store.study import StudyGone
from sweeps.text.errors import one_line
from sweeps.text.figures import measured
from sweeps.text.paths import short
from trainables.config import TrialSpec
from trainables.records.epochs import LEDGER, by_epoch, epoch_folder, read_curve, read_ledger
from trainables.records.files import BrokenFile, digest
from trainables.records.pareto import Metrics, SelectionFigures


def _with_figures(metrics: dict[str, Any]) -> dict[str, Any]:
    for name in ("ser", "mia_auc", "epsilon", "epsilon_paper"):
        if not isinstance(metrics.get(name), int | float):
            raise ValueError(f"{name} is missing")
    return metrics


def _numbers(baseline: dict[str, Any]) -> dict[str, Any]:
    for name, value in _with_figures(baseline).items():
        if not isinstance(value, str | None if name == "run_id" else int | float):
            raise ValueError(f"{name} = {short(value)}")
    return baseline


class SweepRecord(Frozen):
    """A sweep without its trials: `sweep.json`."""

    # The baseline's epsilon is infinite. pydantic would refuse it otherwise, and write null.
    model_config = ConfigDict(ser_json_inf_nan="constants", allow_inf_nan=True)

    name: str
    recipe: str
    state: Literal["running", "stopped", "failed", "finished"]
    tracking_uri: str
    run_id: str
    wanted: Annotated[int, Field(ge=0)]
    pid: Annotated[int, Field(ge=0)]
    baseline: Annotated[dict[str, Any], AfterValidator(_numbers)] | None = None
    """Metrics of plain SGD, and the `run_id` of its run."""
    baseline_run_id: str | None = None
    baseline_tracked: bool = False
    """True once MLflow has everything about the baseline."""
    runs: dict[int, str | None] = Field(default_factory=dict)
    """MLflow runs that replace those that the study names, by trial: of an ended trial the study takes no new one.

    None: MLflow has lost the run.
    """
    study: str | None = None
    """The study's name, if MLflow's run of the sweep is not the first one, after which a shared study is named."""
    schema_only: Annotated[dict[str, Any], AfterValidator(_numbers)] | None = None
    """Metrics of the schema alone (`sweeps.engine.prepare`); None if it has no text."""
    error: str | None = None
    end_due: bool = False
    """True from the start of a driver until MLflow has the sweep's end. If the driver has died, the end is missing."""
    examples: int | None = None
    """Training utterances."""
    settings: dict[str, str]
    """Digests of the recipe's settings (`sweeps.store.unchanged`)."""


@dataclass(frozen=True)
class Checkpoint:
    """A kept model."""

    path: str
    """The folder of its `model.pt` and `ledger.json`, as `path` of a checkpoint of Ray."""


@dataclass(frozen=True)
class Point:
    """A kept epoch of a trial: a candidate, which is the trial's configuration trained for that many epochs."""

    trial: int
    epoch: int
    """Epochs done: `training.epochs` of a training that makes the same model."""
    params: dict[str, Any]
    metrics: dict[str, float]
    """Metrics on the test split (`ser`, …) and on the validation split (`valid_ser`, …)."""
    run_id: str | None
    folder: Path
    """The folder of this epoch's `model.pt` and `ledger.json`."""
    ledger: Ledger | None
    """The steps that made the model; None if they are unknown. `metrics` has the ε, which may count more."""
    recipe: Recipe = field(repr=False, compare=False)
    """The sweep's recipe."""
    last: bool = True
    """True for the trial's last epoch."""
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files in `folder` and in `features/`, as the trial wrote them."""

    @property
    def spec(self) -> TrialSpec:
        """The trial's configuration."""
        return self.recipe.trial(self.params)

    @property
    def checkpoint(self) -> Checkpoint:
        """The model of this epoch."""
        return Checkpoint(str(self.folder))

    @cached_property
    def selection_figures(self) -> SelectionFigures:
        """The figures by which points are compared and chosen."""
        return SelectionFigures(self.metrics)

    @cached_property
    def name(self) -> str:
        """The trial's number, with the epoch unless it is the last: `2`, `2@3`."""
        return str(self.trial) if self.last else f"{self.trial}@{self.epoch}"

    def public(self) -> dict[str, Any]:
        """Return the point's part of a `--json` document."""
        return {
            "number": self.trial,
            "epoch": self.epoch,
            "params": self.params,
            **measured(self.metrics),
            "run_id": self.run_id,
        }


@dataclass(frozen=True)
class TrialRecord:
    """A trial as the study knows it.

    `state`: running, interrupted (its sweep has no driver), complete, stopped (early, and measured), failed or refused.
    """

    number: int
    state: str
    params: dict[str, Any]
    metrics: dict[str, float]
    run_id: str | None
    reason: str | None
    ledger: Ledger | None
    """What its ε counts; None if it is unknown (`known_ledger`)."""
    recipe: Recipe = field(repr=False, compare=False)
    """The sweep's recipe."""
    points: tuple[Point, ...] = ()
    """The kept epochs, the last one last."""
    curve: tuple[dict[str, float], ...] = ()
    """Each epoch's report, the first epoch first: losses, seconds, epsilons, and `valid_` metrics."""

    @property
    def spec(self) -> TrialSpec:
        """The configuration.

        Raises:
            pydantic.ValidationError: for a refused trial whose parameters are no configuration.
        """
        return self.recipe.trial(self.params)

    def public(self) -> dict[str, Any]:
        """Return the trial's part of a `--json` document."""
        return {
            "number": self.number,
            "state": self.state,
            "params": self.params,
            **measured(self.metrics),
            "run_id": self.run_id,
            "reason": self.reason,
            "points": [{"epoch": point.epoch, **measured(point.metrics)} for point in self.points],
        }


REPEATED = "repeated"
"""State of a trial of the study that had the configuration of another one, and was not run."""


def number_of(trial: FrozenTrial | Trial) -> int:
    """Return the number of a trial and its folder. One that follows an interrupted or repeated one has its number."""
    number: int = trial.user_attrs.get("retry_of", trial.number)
    return number


class _Epoch(BaseModel):
    """A kept epoch in the study."""

    epoch: Annotated[int, Field(ge=1)]
    metrics: Annotated[Metrics, AfterValidator(_with_figures)]


class ConfirmedRun(BaseModel):
    """A training of `edp-sweep confirm`, in its folder."""

    seed: int
    run_id: str | None
    metrics: Annotated[Metrics, AfterValidator(_with_figures)]


class TrialAttributes(BaseModel):
    """The attributes that the driver wrote to the study's trial, validated."""

    state: str | None = None
    params: dict[str, Any] = {}
    metrics: Metrics = {}
    points: list[_Epoch] = []
    epochs: list[Metrics] = []
    run_id: str | None = None
    reason: str | None = None
    retry_of: int | None = None
    digests: dict[str, str] = {}
    """SHA-256 of each file of the trial, by its path in the trial's folder."""
    tags: dict[str, str] = {}


_STATES = {TrialState.COMPLETE: "complete", TrialState.RUNNING: "running"}


def trial_record(trial: FrozenTrial, folder: Path, recipe: Recipe, runs: Mapping[int, str | None]) -> TrialRecord:
    """Return the record of a study's trial.

    Args:
        folder: of the trial.
        recipe: of the sweep.
        runs: MLflow runs that replace those that the study names, by trial (`SweepRecord.runs`).

    Raises:
        StudyGone: for attributes that no driver wrote.
    """
    try:
        told = TrialAttributes.model_validate(trial.user_attrs)
    except ValidationError as error:
        raise StudyGone(f"its study is broken (trial {trial.number}: {one_line(error)})") from None
    curve = told.epochs or read_curve(folder)
    # A trial that was interrupted may be refused when its sweep goes on. Its steps count.
    never_ran = told.state == "refused" and not folder.is_dir()
    ledger = Ledger() if never_ran else known_ledger(folder, curve, told.digests.get(LEDGER))
    run_id = runs.get(number_of(trial), told.run_id)
    shared: dict[str, Any] = {"params": told.params, "run_id": run_id, "recipe": recipe}
    points = []
    for kept in told.points:
        last = kept is told.points[-1]
        place = Path() if last else epoch_folder(Path(), kept.epoch)
        own = {name: told.digests.get(str(place / name)) for name in (MODEL, LEDGER)}
        features = {name: one for name, one in told.digests.items() if name.startswith(f"{FEATURES}/")}
        points.append(
            Point(
                trial=number_of(trial),
                epoch=kept.epoch,
                metrics=kept.metrics,
                folder=folder / place,
                ledger=ledger.until(kept.epoch) if ledger is not None else None,
                last=last,
                digests={name: one for name, one in own.items() if one is not None} | features,
                **shared,
            )
        )
    # An interrupted trial has not ended: the driver will take it up again.
    state = "running" if told.state == "interrupted" else told.state or _STATES.get(trial.state, "failed")
    return TrialRecord(
        number=number_of(trial),
        state=state,
        metrics=told.metrics,
        reason=told.reason,
        ledger=ledger,
        points=tuple(points),
        curve=tuple(curve),
        **shared,
    )


def known_ledger(folder: Path, curve: list[Metrics], wrote: str | None = None) -> Ledger | None:
    """Return the ledger of a training: the steps that ran, and on a private corpus the rest of its plan; or None.

    It is None if the ledger is missing or broken, differs from the one that the trial wrote, or holds fewer
    epochs than have reported.

    Args:
        wrote: SHA-256 of the ledger that the trial wrote; None if the trial has not ended.
    """
    try:
        found = read_ledger(folder)
    except BrokenFile:
        return None
    if found is None or (wrote is not None and digest(folder / LEDGER) != wrote):
        return None
    last = max(by_epoch(curve), default=0)
    if found.private and last > max((entry.epoch + 1 for entry in found.entries), default=0):
        return None
    return found


FEATURES = "features"
MODEL = "model.pt"
_OF_MODEL = (MODEL, LEDGER, "attack_features.npz")


def digests(folder: Path, features: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of a trial's last model and kept epochs, by their paths in its folder.

    Args:
        features: the folder of the encoded corpus that a model needs too. Its files get paths under `features/`.
    """
    places = (folder, *sorted((folder / "epochs").glob("*/")))
    files = (place / name for place in places for name in _OF_MODEL)
    found = {str(file.relative_to(folder)): digest(file) for file in files if file.is_file()}
    public = (file for file in sorted(features.rglob("*")) if file.is_file())
    return found | {f"{FEATURES}/{file.relative_to(features)}": _unchanged(file) for file in public}


def _unchanged(file: Path) -> str:
    """Return the digest of a file that all trials share. Read it once: word vectors may take gigabytes."""
    about = file.stat()
    return _digest_of(file, about.st_size, about.st_mtime_ns)


@functools.cache
def _digest_of(file: Path, size: int, changed: int) -> str:
    return digest(file)
