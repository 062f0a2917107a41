"""The trained model under attack: its folder, configuration and MLflow run, found by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from edp.spec import UserError
from sweeps.config.loading import load_config
from sweeps.config.parts import ResourcesSpec
from sweeps.results.recommendation import picked_spec
from sweeps.store.records import Point
from sweeps.store.storage import Place, default_tracking_uri
from sweeps.store.sweep import Sweep, all_sweeps
from sweeps.text.paths import as_path
from sweeps.tracking.store import check_store, refusal
from trainables.config import TrialSpec
from trainables.records.files import reading


@dataclass(frozen=True)
class Target:
    """A trained model, and where the results of attacks go."""

    name: str
    folder: Path
    """Folder of `model.pt` and `ledger.json`."""
    spec: TrialSpec
    place: Place
    run_id: str | None
    tracking_uri: str
    experiment: str
    resources: ResourcesSpec
    epoch: int
    """Number of epochs that it was trained for."""
    artifacts: str = "attacks"
    """Folder of the results in the run's artifacts."""
    again: TrialSpec | None = None
    """Configuration that trains this model again, if it is an earlier epoch of its trial."""


def find_target(run: str, storage: Path, tracking_uri: str | None) -> Target:
    """Return the model that `run` names.

    Args:
        run: SWEEP/NUMBER (SWEEP/2@3 is trial 2 after epoch 3), SWEEP/baseline, a folder of `edp-sweep train` (its path,
            or its name in `storage`), or an MLflow run's id.

    Raises:
        UserError: if there is no such run, or it has no model.
    """
    try:
        places = [folder.resolve() for folder in (as_path(storage / as_path(run)), as_path(run))]
    except UserError as error:
        raise UserError(f"run = {error}") from None
    for folder in places:
        # A trial's folder has a config.yaml, too, but no cache beside it.
        if (folder / "config.yaml").is_file() and (folder.parent / "cache").is_dir():
            return _of_training(Place(folder.parent, folder.name), None, tracking_uri)
    name, _, which = run.partition("/")
    if which:
        return _of_sweep(Sweep.existing(storage, name), which, tracking_uri)
    for sweep in all_sweeps(storage):
        try:
            runs = {(sweep.record.baseline or {}).get("run_id"): "baseline"}
            runs |= {trial.run_id: str(trial.number) for trial in sweep.trials()}
        except UserError:
            continue  # broken files of other sweeps do not matter here
        if run in runs:
            return _of_sweep(sweep, runs[run], tracking_uri)
    place = _training_of_run(run, storage, tracking_uri)
    if place is not None:
        return _of_training(place, run, tracking_uri)
    raise UserError(
        f"run = {run!r}: no such run in {storage}; allowed: SWEEP/NUMBER, SWEEP/baseline, the folder of a "
        "training, or an MLflow run's id"
    )


def _of_sweep(sweep: Sweep, which: str, tracking_uri: str | None) -> Target:
    record, recipe = sweep.record, sweep.recipe
    if which == "baseline":
        if record.baseline is None:
            raise UserError(
                f"run = {sweep.name}/baseline: its SGD baseline is not trained yet; allowed: after it has been trained"
            )
        folder, spec, run_id = sweep.folder / "baseline", recipe.baseline(), record.baseline["run_id"]
    else:
        ended = [trial for trial in sweep.trials() if trial.state in ("complete", "stopped")]
        points = {point.name: point for trial in ended for point in trial.points}
        spelled_out = {f"{trial.number}@{trial.points[-1].epoch}": trial.points[-1] for trial in ended}
        if which not in points | spelled_out:
            raise UserError(
                f"run = {sweep.name}/{which}: there is no model of this name; "
                f"allowed: {', '.join(['baseline', *points])}"
            )
        return of_point(sweep, (spelled_out | points)[which], tracking_uri)
    uri = tracking_uri or record.tracking_uri
    name = f"{sweep.name}/{which}"
    target = Target(name, folder, spec, sweep, run_id, uri, record.recipe, recipe.resources, spec.training.epochs)
    return _with_model(target)


def of_point(sweep: Sweep, point: Point, tracking_uri: str | None = None) -> Target:
    """Return the model of a sweep's point.

    Raises:
        UserError: if its file is gone, or it was trained on the utterances that the attacks need as non-members.
    """
    record, recipe = sweep.record, sweep.recipe
    return _with_model(
        Target(
            name=f"{sweep.name}/{point.name}",
            folder=point.folder,
            spec=point.spec,
            place=sweep,
            run_id=point.run_id,
            tracking_uri=tracking_uri or record.tracking_uri,
            experiment=record.recipe,
            resources=recipe.resources,
            epoch=point.epoch,
            artifacts="attacks" if point.last else f"attacks-epoch-{point.epoch}",
            again=picked_spec(point),
        )
    )


def _of_training(place: Place, run_id: str | None, tracking_uri: str | None) -> Target:
    spec = load_config(place.folder / "config.yaml", [])
    uri = tracking_uri or default_tracking_uri(place.storage)
    run_id = run_id or _run_of_training(place.name, uri)
    return _with_model(
        Target(place.name, place.folder, spec, place, run_id, uri, "train", ResourcesSpec(), spec.training.epochs)
    )


def _with_model(target: Target) -> Target:
    if not (target.folder / "model.pt").is_file():
        raise UserError(f"run = {target.name}: {target.folder} has no model.pt; allowed: a run that has completed")
    if trained_on(target.folder / "model.pt") == "train+valid":
        raise UserError(
            f"run = {target.name}: its model was trained on train+valid, but attacks need utterances that it has "
            "not seen, and RMIA takes the validation split as its population; allowed: a model trained on train, the "
            "default of edp-sweep train --on"
        )
    return target


def trained_on(model: Path) -> str | None:
    """Return the splits that a model was trained on, as its file says; None if the file does not say it."""
    with reading(model):
        found: str | None = torch.load(model, map_location="cpu", weights_only=True).get("trained_on")
    return found


def _training_of_run(run: str, storage: Path, tracking_uri: str | None) -> Place | None:
    """Return the training that an MLflow run tracked, or None if there is none here."""
    if tracking_uri is None and not (storage / "mlflow.db").is_file():
        return None  # a query would create the store
    uri = check_store(tracking_uri or default_tracking_uri(storage))
    try:
        place = Place(storage, MlflowClient(tracking_uri=uri).get_run(run).data.tags.get("sweep", ""))
    except (MlflowException, UserError):  # there is no such run, or it is not a training in this folder
        return None
    except Exception as error:  # MLflow, its plugins and database drivers have no common error
        raise refusal(uri, error) from None
    return place if (place.folder / "config.yaml").is_file() else None


def _run_of_training(name: str, uri: str) -> str | None:
    """Return the id of the MLflow run that tracked a training, or None if there is none."""
    uri = check_store(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name("train")
        if experiment is None:
            return None
        found = client.search_runs([experiment.experiment_id], f"tags.sweep = '{name}'", max_results=1)
    except Exception as error:  # MLflow, its plugins and database drivers have no common error
        raise refusal(uri, error) from None
    return str(found[0].info.run_id) if found else None
