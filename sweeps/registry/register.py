"""Registration of a trained model in MLflow, with its guarantee, ready for `mlflow models serve`."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import Model

from edp.spec import UserError
from sweeps.config.choice import GIVEN
from sweeps.registry.bundle import answering, quiet, save
from sweeps.registry.card import model_card, privacy_tags, readme
from sweeps.results.recommendation import picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store import journal
from sweeps.store.picks import Pick
from sweeps.store.prepared import locate
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.paths import check_model_name
from sweeps.text.secrets import redacted
from sweeps.tracking.run_tags import WEIGHTS
from sweeps.tracking.tracker import Tracker, tracker_of
from trainables.config import TrialSpec
from trainables.records.files import digest

_VERSIONS = "mlflow.modelVersions"
"""Tag by which MLflow's pages show the versions that were made from a LoggedModel."""
_ARTIFACT = "served_model"


@dataclass(frozen=True)
class Registered:
    """A version of a model in the registry."""

    name: str
    version: int
    megabytes: float
    alias: str = "candidate"

    @property
    def uri(self) -> str:
        """The model's URI for MLflow's commands."""
        return f"models:/{self.name}/{self.version}"

    def document(self) -> dict[str, Any]:
        """Return the version's part of a JSON document."""
        return {"name": self.name, "version": self.version, "uri": self.uri}

    def line(self, tracking_uri: str) -> str:
        """Return a line that names the new version and the command that serves it."""
        words = shlex.join(["mlflow", "models", "serve", "-m", self.uri, "--env-manager", "local"])
        serve = f"MLFLOW_TRACKING_URI={shlex.quote(redacted(tracking_uri))} {words}"
        what = f"registered {self.name} version {self.version}, @{self.alias} ({self.megabytes:.1f} MB)"
        return f"{what}; serve it with: {serve}"


def register_point(
    sweep: Sweep,
    point: Point,
    name: str,
    tracking_uri: str | None = None,
    *,
    with_encoder: bool = False,
    alias: str = "candidate",
    picked: Pick | None = None,
) -> Registered:
    """Add a point's model to the registry of the sweep's tracking store, as a version of `name`.

    The arguments that are not described are those of `register`.

    Args:
        tracking_uri: of the store, if it has moved since the sweep.

    Raises:
        UserError: as `check_point` and `register`.
    """
    found = Snapshot(sweep)
    check_point(found, point, name)
    record, plan = found.record, found.plan
    assert point.run_id is not None
    return register(
        name,
        tracker=tracker_of(sweep, tracking_uri),
        run_id=point.run_id,
        folder=point.folder,
        features=_features_of(found),
        spec=picked_spec(point),
        metrics=point.metrics,
        cost=math.nan if found.epsilon is None else found.epsilon,
        wrote=point.digests,
        with_encoder=with_encoder,
        alias=alias,
        picked=picked,
        choice=found.choice(picked.limits if picked else ()),
        examples=record.examples if plan is None else plan.examples,
    )


def check_point(found: Snapshot, point: Point, name: str) -> None:
    """Check a registration before anything is written.

    Raises:
        UserError: for an invalid name, a trial on a proxy corpus, a point that has no run or no
            digests, or missing files.
    """
    check_model_name(name)
    if found.plan is not None and point.recipe != found.plan.recipe:
        raise UserError(
            f"--register = {name!r}: trial {point.name} is a model of {found.recipe.corpus.name}, on which the sweep "
            f"only chooses; allowed: the released model (without a point), or edp-sweep train --register"
        )
    if point.run_id is None:
        raise UserError(f"--register = {name!r}: trial {point.name} has no MLflow run; allowed: a tracked trial")
    if not point.digests:
        raise UserError(
            f"--register = {name!r}: trial {point.name} kept no digests of its files; allowed: a trial that did "
            "(edp-sweep train makes the model again)"
        )
    _check_files(name, point.folder, _features_of(found))


def _features_of(found: Snapshot) -> Path:
    recipe = found.recipe if found.plan is None else found.plan.recipe
    return locate(recipe.baseline(), found.sweep.cache).corpus / "features"


def _check_files(name: str, folder: Path, features: Path) -> None:
    for needed in (folder / "model.pt", features):
        if not needed.exists():
            raise UserError(
                f"--register = {name!r}: {needed} is gone; allowed: a configuration whose files are there "
                "(edp-sweep train makes them again)"
            )


def register(
    name: str,
    *,
    tracker: Tracker,
    run_id: str,
    folder: Path,
    features: Path,
    spec: TrialSpec,
    metrics: dict[str, float],
    cost: float | None = None,
    wrote: dict[str, str] | None = None,
    with_encoder: bool = False,
    alias: str = "candidate",
    picked: Pick | None = None,
    choice: str = GIVEN,
    trained_on: str = "train",
    examples: int | None = None,
) -> Registered:
    """Add a version of the model `name`, whose files become artifacts of its run.

    First compare the files with the trial's digests, load them, and let the model answer.

    Args:
        folder: the folder of `model.pt` and `ledger.json`.
        features: `features/` of the encoded corpus, which turns words into inputs. It is made from public data alone.
        metrics: of the model. Their privacy figures become the version's tags.
        cost: ε of the sweep that chose the configuration; NaN if unknown, None without a sweep.
        wrote: SHA-256 of the files that the trial wrote, by name, also of `features/…`; None for files that were
            written just now.
        with_encoder: whether to include a frozen public encoder. Without it a server must have the same encoder, which
            its digest checks. A trained encoder is always included.
        alias: `candidate` or `champion`: `models:/NAME@ALIAS` then means this version.
        picked: the choice of the configuration.
        choice: what chose the configuration, and whether ε covers that (`sweeps.config.choice`).
        trained_on: names of the splits, for the model's card.
        examples: utterances of these splits; None if unknown.

    Raises:
        UserError: if the files are missing or broken, or the registry does not take the model.
    """
    check_model_name(name)
    _check_files(name, folder, features)
    if tracker.client.get_run(run_id).info.lifecycle_stage == "deleted":
        raise UserError(
            f"--register = {name!r}: run {run_id} is deleted in MLflow, which may remove its artifacts at any time; "
            f"allowed: a run that is not deleted (restore it with: mlflow runs restore --run-id {run_id})"
        )
    # A run may have a model of each epoch.
    place = f"{_ARTIFACT}/{spec.training.epochs}" + ("-with-encoder" if with_encoder else "")
    with tempfile.TemporaryDirectory() as temporary, quiet():
        served = Path(temporary) / "served"
        try:
            place = _free_place(tracker, run_id, place)
            bundle, parts = answering(name, Path(temporary), folder, features, spec, wrote or {}, with_encoder)
            card = model_card(spec, metrics, parts, cost, picked, trained_on, examples, choice)
            (bundle / "README.md").write_text(readme(name, spec, metrics, card), encoding="utf-8")
            save(served, bundle, Model(artifact_path=place, run_id=run_id, metadata=parts), spec)
            size = sum(file.stat().st_size for file in served.rglob("*") if file.is_file())
            tags = privacy_tags(spec, metrics, cost, choice) | parts | {WEIGHTS: digest(bundle / "model.safetensors")}
            # First the account, then the registry: a line too many overstates, a model without a line understates.
            journal.release(folder, f"models:/{name} (run {run_id})")
            version = _new_version(tracker, name, served, run_id, place, tags, card, spec.training.epochs)
            tracker.client.set_registered_model_alias(name, alias, str(version))
        except (MlflowException, OSError) as error:
            reason = redacted(" ".join(str(error).split()), tracker.uri)[:200]
            raise UserError(
                f"--register = {name!r}: {redacted(tracker.uri)} does not take the model ({reason})"
            ) from None
    return Registered(name, version, size / 1e6, alias)


def _free_place(tracker: Tracker, run_id: str, place: str) -> str:
    """Return `place`, with a number if an earlier version of the run has its files there."""
    taken = {file.path for file in tracker.client.list_artifacts(run_id, place.rpartition("/")[0])}
    return next(name for n in itertools.count(1) if (name := place if n == 1 else f"{place}-{n}") not in taken)


def _new_version(
    tracker: Tracker, name: str, served: Path, run_id: str, place: str, tags: dict[str, str], card: str, epoch: int
) -> int:
    """Copy the folder `served` to the run's artifacts, at `place`, and add a version of it; return its number.

    The version belongs to the run's LoggedModel after this epoch, if there is one.
    """
    tracker.client.log_artifacts(run_id, str(served), place)
    ensure_model(tracker, name, "Utterances in; intent, slots and their scores out.")
    candidate = tracker.candidate_of(run_id, epoch)
    linked = {} if candidate is None else {"logged_model": candidate}
    version = tracker.client.create_model_version(
        name,
        f"{tracker.client.get_run(run_id).info.artifact_uri}/{place}",
        run_id,
        tags=tags | linked | {"ledger": f"runs:/{run_id}/{place}/artifacts/bundle/ledger.json"},
        description=card,
    )
    if candidate is not None:
        known = json.loads(tracker.client.get_logged_model(candidate).tags.get(_VERSIONS, "[]"))
        both = [*known, {"name": name, "version": f"{version.version}"}]
        tracker.client.set_logged_model_tags(candidate, {_VERSIONS: json.dumps(both)})
    return int(version.version)


def ensure_model(tracker: Tracker, name: str, description: str) -> None:
    """Add a model of this name to the registry, unless it has one."""
    try:
        tracker.client.create_registered_model(name, description=description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
