"""The files of a served model. They are assembled, tested before the registration, and saved as an MLflow model."""

from __future__ import annotations

import importlib.metadata
import logging
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors.torch
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import AnyType, ColSpec, Schema

from edp.spec import UserError
from sweeps.store.records import FEATURES
from trainables.config import BERTSpec, TrialSpec
from trainables.features.compute_states import encoder_of, take_encoder
from trainables.features.states import has_states
from trainables.models.released import WEIGHTS, write_model
from trainables.records.files import digest, disk_full, one_line

_EXAMPLE = ["play some jazz", "what is the weather in boston"]
_CODE = Path(__file__).parents[2]
_NEEDED = ("mlflow", "torch", "numpy", "pydantic", "tokenizers", "platformdirs", "safetensors", "lazy_loader")
"""Packages that `sweeps.registry.serving` imports, and MLflow's server."""


def answering(
    name: str, temporary: Path, folder: Path, features: Path, spec: TrialSpec, wrote: dict[str, str], with_encoder: bool
) -> tuple[Path, dict[str, str]]:
    """Assemble the bundle in `temporary`, check its files against the trial's digests, and let it answer an example.

    Args:
        wrote: SHA-256 of the files that the trial wrote, by name.
        with_encoder: whether to include a frozen public encoder.

    Returns:
        The bundle's folder, and its private and public parts in words.

    Raises:
        UserError: naming the file that is missing, changed or broken.
    """
    from mlflow.pyfunc.model import PythonModelContext

    from sweeps.registry.serving import BUNDLE, UtteranceModel  # MLflow's models take seconds to import

    again = "allowed: the files that the trial wrote (edp-sweep train makes them again)"
    try:
        for file, sha in wrote.items():
            prefix = f"{FEATURES}/"
            place = features / file.removeprefix(prefix) if file.startswith(prefix) else folder / file
            if not place.is_file() or digest(place) != sha:
                raise UserError(f"--register = {name!r}: {place} is not the file that the trial wrote; {again}")
        bundle = _bundle(temporary / BUNDLE, folder, features, spec, with_encoder)
        model = UtteranceModel()
        model.load_context(PythonModelContext({BUNDLE: str(bundle)}, {}))
        if not all(math.isfinite(score) for answer in model.predict(None, _EXAMPLE) for score in answer.scores):
            raise ValueError("its scores are not finite")
        return bundle, _parts(bundle, spec)
    except UserError:
        raise
    except Exception as error:  # whatever PyTorch, NumPy and JSON raise for a broken file
        if full := disk_full(error):
            raise UserError(f"--register = {name!r}: {full}") from None
        raise UserError(
            f"--register = {name!r}: the model in {folder} and {features} does not load and answer "
            f"({one_line(error)}); {again}"
        ) from None


def requirements(spec: TrialSpec) -> list[str]:
    """Return the requirements of a server, in the versions installed here."""
    names = [*_NEEDED, "transformers" if isinstance(spec.model, BERTSpec) else "gensim"]
    return [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in names]


def _bundle(bundle: Path, source: Path, features: Path, spec: TrialSpec, with_encoder: bool) -> Path:
    """Write the released model's folder."""
    shutil.copytree(features, bundle / "features")
    if (source / "ledger.json").is_file():
        shutil.copy2(source / "ledger.json", bundle)
    write_model(bundle, spec.model, source / "model.pt")
    if has_states(spec.model) and with_encoder:
        take_encoder(spec.model, bundle / "encoder")
    return bundle


def _parts(bundle: Path, spec: TrialSpec) -> dict[str, str]:
    """Return the private and the public part of a model with a frozen encoder, in words; {} for other models."""
    if not has_states(spec.model):
        return {}
    saved = safetensors.torch.load_file(bundle / WEIGHTS)
    about = encoder_of(bundle / "features")
    return {
        "private part": f"heads, {sum(saved[name].numel() for name in saved if name.endswith('weight')):,} weights",
        "public part": f"encoder {about['pretrained']}, {about['weights']:,} weights, SHA-256 {about['digest']}",
        **public_start(spec),
    }


def public_start(spec: TrialSpec) -> dict[str, str]:
    """Return what the heads began at in words; {} if they began at zero."""
    model = spec.model
    assert isinstance(model, BERTSpec), "CLC has no heads on states"
    found = [f"{model.name_prior:g} of the scores of the labels' names"] if model.name_prior else []
    if (model.schema_weight or model.slot_prior) and spec.corpus.schema is not None:
        learnt = [f"{model.schema_weight:g} of heads that learnt from"] if model.schema_weight else []
        learnt += [f"{model.slot_prior:g} of what the slots of an intent are in"] if model.slot_prior else []
        found.append(
            f"{' and '.join(learnt)} the samples of the schema {spec.corpus.schema}, if it has any; whoever wrote them "
            "says that they are public"
        )
    return {"the heads began at": "; ".join(found)} if found else {}


def save(served: Path, bundle: Path, about: Model, spec: TrialSpec) -> None:
    """Write an MLflow model to `served`, with an example and its answer."""
    import mlflow.pyfunc  # slow to import, and only needed here
    from mlflow.types.type_hints import _infer_schema_from_list_type_hint

    from trainables.models.released import Prediction

    signature = ModelSignature(Schema([ColSpec(AnyType())]), _infer_schema_from_list_type_hint(list[Prediction]))
    signature._is_signature_from_type_hint = True  # else MLflow drops all but the first column of a data frame
    mlflow.pyfunc.save_model(
        served,
        python_model=str(Path(__file__).with_name("serving.py")),
        artifacts={"bundle": str(bundle)},
        model_config={"answers": "whole"},
        code_paths=[str(_CODE / "edp"), str(_CODE / "trainables")],
        input_example=_EXAMPLE,
        signature=signature,
        pip_requirements=requirements(spec),
        mlflow_model=about,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence MLflow's progress bars and warnings while the block runs: standard output is for results."""
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
