"""The corpora that a run reads, as MLflow's inputs: name, digest and sizes, never an utterance."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from mlflow.entities import Dataset, DatasetInput, InputTag

from trainables.corpora import is_generated
from trainables.data.encoded_corpus import EncodedCorpus, Split
from trainables.spec import CorpusSpec, TrialSpec

_SPLITS: tuple[Split, ...] = ("train", "valid", "test")
_DIGEST = 32
"""Hexadecimal digits: MLflow takes 36."""


def corpus_inputs(spec: TrialSpec, private: Path, shadow: Path) -> list[DatasetInput]:
    """The private corpus and the shadow's, by the digests of their encodings; one that is not encoded yet is left out.

    Args:
        private, shadow: folders of the encoded corpora.
    """
    found = ((private, spec.corpus, "private"), (shadow, spec.shadow.corpus, "shadow"))
    return [_input(folder, corpus, use) for folder, corpus, use in found if (folder / "meta.json").is_file()]


@functools.lru_cache(maxsize=64)
def _input(folder: Path, corpus: CorpusSpec, use: str) -> DatasetInput:
    encoded = EncodedCorpus.open(folder)
    kind = "generated" if is_generated(corpus) else "files" if corpus.path is not None else "public"
    return DatasetInput(
        Dataset(
            name=corpus.name,
            digest=encoded.digest[:_DIGEST],
            source_type=kind,
            source=json.dumps(corpus.model_dump(mode="json", exclude={"path", "columns"})),
            profile=json.dumps({split: encoded.size(split) for split in _SPLITS}),
        ),
        [InputTag("mlflow.data.context", use)],
    )
