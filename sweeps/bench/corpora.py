"""Corpora and models of the benchmarks, encoded into a folder that lives as long as the benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edp.spec import UserError
from sweeps.formatting.errors import one_line
from trainables.corpora import load_corpus
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.encoding import encode
from trainables.spec import TrialSpec

MODELS = ("clc", "bert")
# Word vectors and pieces cost a step the same wherever they come from: small public corpora will do.
_PUBLIC = {"name": "health", "utterances": 2000}
_OTHER = {"name": "video", "utterances": 2000}


def bench_spec(model: str, corpus: dict[str, Any], *, batch_size: int, workers: int, **sizes: int) -> TrialSpec:
    """The model at the paper's sizes (or `sizes`), one micro-batch a worker.

    Raises:
        UserError: for settings that cannot be.
    """
    public = _OTHER if corpus["name"] == _PUBLIC["name"] else _PUBLIC
    kinds: dict[str, dict[str, Any]] = {
        "clc": {"kind": "clc", "embeddings": {"corpus": public, "epochs": 1}},
        "bert": {"kind": "bert", "pretrained": None, "vocabulary": public},
    }
    settings = {
        "corpus": corpus,
        "model": {**kinds[model], **sizes},
        "shadow": {"corpus": public},
        "training": {"batch_size": batch_size, "micro_batches": workers, "workers": workers},
    }
    try:
        return TrialSpec.model_validate(settings)
    except ValidationError as error:
        raise UserError(one_line(error)) from None


def encoded(spec: TrialSpec, folder: Path) -> EncodedCorpus:
    """The corpus of a spec, encoded into `folder` unless it is there."""
    if (folder / "meta.json").is_file():
        return EncodedCorpus.open(folder)
    return encode(load_corpus(spec.corpus), spec.model, folder)
