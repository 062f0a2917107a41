"""The folder that a pretraining leaves: an encoder that `model.pretrained` takes, and what it was trained on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from transformers import PreTrainedModel

from trainables.corpora import Utterance
from trainables.encoders.architecture import quiet
from trainables.encoders.pretrained import pretrained_folder
from trainables.encoders.word_pieces import WordPieces
from trainables.pretraining.data import Pool
from trainables.pretraining.overlap import ABOUT, HASHES, hashes_of, seen_by
from trainables.pretraining.run import Record
from trainables.pretraining.spec import PretrainSpec

_PACKAGES = ("edp-sweeps", "torch", "transformers")


def has_settings_of(spec: PretrainSpec, about: dict[str, Any]) -> bool:
    """Return True if `about`, a `pretraining.json`, has the settings of `spec`; corpora and start are not compared."""
    try:
        # Read as a spec, so that a setting which did not exist then counts as its default.
        model = {**about["settings"]["model"], "pretrained": spec.model.pretrained}
        return PretrainSpec.model_validate({**about["settings"], "model": model, "corpora": spec.corpora}) == spec
    except (KeyError, TypeError, ValidationError):
        return False


def describe(spec: PretrainSpec, pool: Pool, record: Record, started_from: str) -> dict[str, Any]:
    """What `pretraining.json` says. It names no place on this machine.

    Args:
        started_from: digest of the encoder that it started from.
    """
    earlier, _ = seen_by(pretrained_folder(spec.model.pretrained)[0])
    return {
        "started_from": {"name": Path(spec.model.pretrained).name, "sha256": started_from},
        "corpora": list(pool.corpora),
        "earlier_corpora": earlier,
        "settings": spec.model_dump(mode="json", exclude={"corpora": True, "model": {"pretrained"}}),
        "steps": record.steps,
        "loss": record.curve(),
        "seconds": round(record.seconds, 1),
        "cpu_seconds": round(record.cpu_seconds, 1),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def write_folder(
    folder: Path,
    encoder: PreTrainedModel,
    pieces: WordPieces,
    spec: PretrainSpec,
    about: dict[str, Any],
    corpora: Sequence[Iterable[Utterance]],
) -> None:
    """Writes `folder`, whole or not at all: config.json, model.safetensors (float32), tokenizer.json,
    pretraining.json, and the hashes of all utterances.

    Raises:
        OSError: where it is there already, or cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with quiet():
            encoder.save_pretrained(building)
        pieces.save_tokenizer(building)
        _, earlier = seen_by(pretrained_folder(spec.model.pretrained)[0])
        hashes = [hashes_of(utterance for utterances in corpora for utterance in utterances), *earlier]
        np.save(building / HASHES, np.unique(np.concatenate(hashes)))
        (building / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        building.chmod(0o755)  # mkdtemp's 0700 would keep other users' workers out
        os.rename(building, folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
