"""A trained model in MLflow's registry, with what it guarantees, ready for `mlflow models serve`."""

from __future__ import annotations

import importlib.metadata
import itertools
import logging
import math
import os
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mlflow.exceptions import MlflowException
from mlflow.models import Model

from edp.spec import UserError
from sweeps.execution.prepare import locate
from sweeps.formatting.names import check_model_name
from sweeps.formatting.secrets import redacted
from sweeps.registry.card import model_card, privacy_tags
from sweeps.results.choice import picked_spec
from sweeps.results.total import epsilon_of_sweep
from sweeps.state.picks import Pick
from sweeps.state.records import Point
from sweeps.state.sweep import Sweep
from sweeps.state.trial_file import FEATURES
from sweeps.tracking.run_tags import WEIGHTS
from sweeps.tracking.tracker import Tracker
from trainables.data.states import has_states
from trainables.frozen.serving import encoder_of, take_encoder
from trainables.records.files import digest, disk_full
from trainables.spec import BERTSpec, TrialSpec

_ARTIFACT = "served_model"
_EXAMPLE = ["play some jazz", "what is the weather in boston"]
_CODE = Path(__file__).parents[2]
_NEEDED = ("mlflow", "torch", "numpy", "pydantic", "tokenizers", "platformdirs")
"""What `sweeps.registry.serving` imports, and MLflow's server around it."""


@dataclass(frozen=True)
class Registered:
    """A version of a model in the registry."""

    name: str
    version: int
    megabytes: float
    alias: str = "candidate"
    compared: bool = True
    """Whether the trial had kept digests of the files, so that they are known to be those that it wrote."""

    @property
    def uri(self) -> str:
        """What MLflow's commands take."""
        return f"models:/{self.name}/{self.version}"

    def document(self) -> dict[str, Any]:
        """What `--json` prints; `compared` only where it is false."""
        old = {} if self.compared else {"compared": False}
        return {"name": self.name, "version": self.version, "uri": self.uri} | old

    def line(self, tracking_uri: str) -> str:
        """What happened, and how to serve it."""
        words = shlex.join(["mlflow", "models", "serve", "-m", self.uri, "--env-manager", "local"])
        serve = f"MLFLOW_TRACKING_URI={shlex.quote(redacted(tracking_uri))} {words}"
        old = "" if self.compared else "; its trial kept no digests: the files load and answer, and were not compared"
        what = f"registered {self.name} version {self.version}, @{self.alias} ({self.megabytes:.1f} MB){old}"
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
    """Adds a point's model to the registry of the sweep's tracking store, as a version of `name`.

    Args:
        tracking_uri: of the store, where it has moved since the sweep.
        with_encoder: as `register`.
        alias: likewise.
        picked: likewise.

    Raises:
        UserError: as `register`.
    """
    check_point(sweep, point, name)
    record = sweep.record
    assert point.run_id is not None
    cost = epsilon_of_sweep(sweep, sweep.trials())
    return register(
        name,
        tracker=Tracker(
            tracking_uri or record.tracking_uri, record.recipe, sweep.folder.parent / "mlflow-artifacts", new=False
        ),
        run_id=point.run_id,
        folder=point.folder,
        features=_features_of(sweep),
        spec=picked_spec(point),
        metrics=point.metrics,
        cost=math.nan if cost is None else cost,
        wrote=point.digests,
        with_encoder=with_encoder,
        alias=alias,
        picked=picked,
    )


def check_point(sweep: Sweep, point: Point, name: str) -> None:
    """What can be said of a registration before anything is written.

    Raises:
        UserError: for a name that is none, a point without a run, and files that are gone.
    """
    check_model_name(name)
    if point.run_id is None:
        raise UserError(f"--register = {name!r}: trial {point.name} has no run; allowed: one that was tracked")
    _check_files(name, point.folder, _features_of(sweep))


def _features_of(sweep: Sweep) -> Path:
    return locate(sweep.recipe.baseline(), sweep.cache).corpus / "features"


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
    trained_on: str = "train",
) -> Registered:
    """Adds a version of the model `name`, whose files become artifacts of its run.

    Before there is a version the files are compared with what the trial wrote, loaded, and asked.

    Args:
        folder: holds the model's `model.pt` and `ledger.json`.
        features: `features/` of the encoded corpus: what a word becomes. They are made of public data alone.
        metrics: of the model; the privacy figures among them become the version's tags.
        cost: ε of what choosing the configuration took, all trials together; NaN where that is not known.
        wrote: SHA-256 of the files by name, `features/…` too, as the trial kept them; empty for a trial that kept none,
            None for files that were made just now.
        with_encoder: whether a frozen public encoder goes along; else a server must have the same, which is checked by
            its digest. Encoders that are trained go along in any case.
        alias: `candidate` or `champion`: `models:/NAME@ALIAS` is then this version.
        picked: who chose it.
        trained_on: the splits, for the model's card.

    Raises:
        UserError: when the files are gone or broken, or the registry does not take the model.
    """
    check_model_name(name)
    _check_files(name, folder, features)
    if tracker.client.get_run(run_id).info.lifecycle_stage == "deleted":
        raise UserError(
            f"--register = {name!r}: run {run_id} is deleted in MLflow, and its artifacts may go at any time; "
            f"allowed: mlflow runs restore --run-id {run_id}, and again"
        )
    # A run has a model of each of its epochs.
    place = f"{_ARTIFACT}/{spec.training.epochs}" + ("-with-encoder" if with_encoder else "")
    with tempfile.TemporaryDirectory() as temporary, _quiet():
        served = Path(temporary) / "served"
        try:
            place = _free_place(tracker, run_id, place)
            bundle, parts = _answering(name, Path(temporary), folder, features, spec, wrote or {}, with_encoder)
            _save(served, bundle, Model(artifact_path=place, run_id=run_id, metadata=parts), spec)
            size = sum(file.stat().st_size for file in served.rglob("*") if file.is_file())
            card = model_card(spec, metrics, parts, cost, picked, trained_on)
            (served / "model_card.md").write_text(f"# {name}\n\n{card}\n", encoding="utf-8")
            tags = privacy_tags(spec, metrics, cost) | parts | {WEIGHTS: digest(bundle / "model.pt")}
            version = _new_version(tracker, name, served, run_id, place, tags, card)
            tracker.client.set_registered_model_alias(name, alias, str(version))
        except (MlflowException, OSError) as error:
            reason = redacted(" ".join(str(error).split()), tracker.uri)[:200]
            raise UserError(
                f"--register = {name!r}: {redacted(tracker.uri)} does not take the model ({reason})"
            ) from None
    return Registered(name, version, size / 1e6, alias, compared=wrote is None or bool(wrote))


def _free_place(tracker: Tracker, run_id: str, place: str) -> str:
    """`place`, numbered where an earlier version of the run has its files there."""
    taken = {file.path for file in tracker.client.list_artifacts(run_id, place.rpartition("/")[0])}
    return next(name for n in itertools.count(1) if (name := place if n == 1 else f"{place}-{n}") not in taken)


def _new_version(
    tracker: Tracker, name: str, served: Path, run_id: str, place: str, tags: dict[str, str], card: str
) -> int:
    """Sends the folder `served` to the run's artifacts, at `place`, and makes a version of it; returns its number."""
    tracker.client.log_artifacts(run_id, str(served), place)
    ensure_model(tracker, name, "Utterances in; intent, slots and their scores out.")
    version = tracker.client.create_model_version(
        name,
        f"{tracker.client.get_run(run_id).info.artifact_uri}/{place}",
        run_id,
        tags=tags | {"ledger": f"runs:/{run_id}/{place}/artifacts/bundle/ledger.json"},
        description=card,
    )
    return int(version.version)


def _answering(
    name: str, temporary: Path, folder: Path, features: Path, spec: TrialSpec, wrote: dict[str, str], with_encoder: bool
) -> tuple[Path, dict[str, str]]:
    """The bundle in `temporary`, and its parts: whole, as the trial wrote it, and able to answer.

    Raises:
        UserError: naming the file that is not.
    """
    from mlflow.pyfunc.model import PythonModelContext

    from sweeps.registry.serving import BUNDLE, UtteranceModel  # MLflow's models take seconds to import

    again = "allowed: the files that the trial wrote (edp-sweep train makes them again)"
    try:
        bundle = _bundle(temporary / BUNDLE, folder, features, spec, with_encoder)
        for file, sha in wrote.items():
            if not (bundle / file).is_file() or digest(bundle / file) != sha:
                place = (
                    features / Path(file).relative_to(FEATURES) if file.startswith(f"{FEATURES}/") else folder / file
                )
                raise UserError(f"--register = {name!r}: {place} is not the file that the trial wrote; {again}")
        model = UtteranceModel()
        model.load_context(PythonModelContext({BUNDLE: str(bundle)}, {}))
        if not all(math.isfinite(score) for answer in model.predict(None, _EXAMPLE) for score in answer.scores):
            raise ValueError("its scores are no numbers")
        return bundle, _parts(bundle, spec)
    except UserError:
        raise
    except Exception as error:  # PyTorch's, NumPy's, JSON's: whatever they stumble over in a broken file
        if full := disk_full(error):
            raise UserError(f"--register = {name!r}: {full}") from None
        reason = (" ".join(str(error).split()) or type(error).__name__)[:200]
        raise UserError(
            f"--register = {name!r}: what {folder} and {features} hold does not load and answer ({reason}); {again}"
        ) from None


def requirements(spec: TrialSpec) -> list[str]:
    """What a server has to install, in the versions that are installed here."""
    names = [*_NEEDED, "transformers" if isinstance(spec.model, BERTSpec) else "gensim"]
    return [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in names]


def ensure_model(tracker: Tracker, name: str, description: str) -> None:
    """Makes the registry know a model of this name."""
    try:
        tracker.client.create_registered_model(name, description=description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _bundle(bundle: Path, source: Path, features: Path, spec: TrialSpec, with_encoder: bool) -> Path:
    """Puts together what is served."""
    shutil.copytree(features, bundle / "features")
    for name in ("model.pt", "ledger.json"):
        if (source / name).is_file():
            shutil.copy2(source / name, bundle)
    (bundle / "model.json").write_text(spec.model.model_dump_json(), encoding="utf-8")
    if has_states(spec.model):
        if with_encoder:
            take_encoder(spec.model, bundle / "encoder")
    elif isinstance(spec.model, BERTSpec):
        (bundle / "encoder.json").write_text(_encoder(source / "model.pt"), encoding="utf-8")
    return bundle


def _parts(bundle: Path, spec: TrialSpec) -> dict[str, str]:
    """Which part of a model with a frozen encoder knows the corpus, and which is public; {} of others."""
    if not has_states(spec.model):
        return {}
    saved = torch.load(bundle / "model.pt", map_location="cpu", weights_only=True)["state_dict"]
    about = encoder_of(bundle / "features")
    return {
        "private part": f"heads, {sum(tensor.numel() for tensor in saved.values()):,} weights",
        "public part": f"encoder {about['pretrained']}, {about['weights']:,} weights, SHA-256 {about['digest']}",
    }


def _save(served: Path, bundle: Path, about: Model, spec: TrialSpec) -> None:
    """Writes an MLflow model to `served`, with an example and its answer."""
    import mlflow.pyfunc  # takes seconds, and only whoever registers needs it

    mlflow.pyfunc.save_model(
        served,
        python_model=str(Path(__file__).with_name("serving.py")),
        artifacts={"bundle": str(bundle)},
        code_paths=[str(_CODE / "edp"), str(_CODE / "trainables")],
        input_example=_EXAMPLE,
        pip_requirements=requirements(spec),
        mlflow_model=about,
    )


def _encoder(model: Path) -> str:
    """The architecture of a trained encoder, as Transformers' JSON: a server is to need no pretrained model."""
    saved = torch.load(model, map_location="cpu", weights_only=True)
    if "encoder" not in saved:
        raise UserError(f"{model} does not say what architecture it is; allowed: one that edp-sweep train makes now")
    return str(saved["encoder"])


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow shows bars and warns of what is meant so: standard output is for results."""
    before = os.environ.get("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR")
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        if before is None:
            del os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"]
        else:
            os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = before
