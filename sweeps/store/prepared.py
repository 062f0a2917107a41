"""Paths of the files that all trials of a sweep share, in the storage folder's cache. Names follow from content."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.config import CanariesSpec, CLCSpec, CorpusSpec, TrialSpec
from trainables.config.keys import NO_EFFECT, cache_key, identity
from trainables.corpora import corpus_digest, is_generated, load_corpus
from trainables.corpora.labels import Labels, Task, labels_of
from trainables.corpora.overlap import check_corpus
from trainables.corpora.schema import schema_of
from trainables.records.files import read_json


@dataclass(frozen=True)
class Prepared:
    """Paths of the shared files: the folders of the encoded corpora, the fitted attack, and the canaries' coins."""

    corpus: Path
    shadow: Path
    attack: Path
    coins: Path | None = None


def locate(spec: TrialSpec, cache: Path) -> Prepared:
    """Return the paths of the shared files of `spec`, which need not exist. Names follow from content.

    Raises:
        UserError: if a corpus cannot be found, or the encoder was trained on the corpus.
    """
    model = spec.model
    if isinstance(model, CLCSpec):
        features: list[Any] = [model.embeddings, model.embedding_size]
        field, public = "model.embeddings.corpus", model.embeddings.corpus
    else:
        from trainables.features.pretrained import check_pretrained  # transformers takes seconds to import

        check_corpus(model, spec.corpus)
        features = [model.pretrained, model.vocabulary, *check_pretrained(model)]
        field, public = "model.vocabulary", model.vocabulary
        if model.features is not None:
            others = [corpus_digest(one, f"model.features.public.{i}") for i, one in enumerate(model.features.public)]
            features.append(["states", model.layers, others])
    common = [features, corpus_digest(public, field)]
    target = cache / f"{spec.corpus.name}-{cache_key(common, corpus_digest(spec.corpus))}"
    coins = None
    if spec.canaries.count:
        canaries = cache_key(corpus_digest(spec.corpus), spec.canaries)
        # The coins are not in the encoded corpus' folder, because training reads that folder and must not know them.
        target = cache / f"{spec.corpus.name}-with-canaries-{cache_key(target.name, canaries)}"
        coins = cache / f"coins-{canaries}.json"
    task = task_of_corpus(spec.corpus, target)
    shadow_digest = corpus_digest(spec.shadow.corpus, "shadow.corpus")
    shadow = cache / f"{spec.shadow.corpus.name}-{cache_key(common, shadow_digest, task)}"
    training = identity(shadow_trial(spec).training, NO_EFFECT | {"micro_batches"})  # SGD does not use micro-batches
    attack = cache / f"attack-{cache_key(shadow.name, model, training)}.json"
    return Prepared(target, shadow, attack, coins)


def task_of_corpus(corpus: CorpusSpec, encoded: Path) -> Task:
    """Return the task of a corpus and of its shadow: from its schema or its encoding, if any, else from its files."""
    if (schema := schema_of(corpus)) is not None:
        return Labels.named(schema).task
    if is_encoded(encoded):
        return Labels.from_dict(read_json(encoded / "meta.json", dict[str, Any])["labels"]).task
    return "joint" if is_generated(corpus) else _task_of_files(corpus, corpus_digest(corpus))


@functools.cache
def _task_of_files(corpus: CorpusSpec, digest: str) -> Task:
    """Return the task of a corpus of files. With `digest` as an argument, the cache misses if the files change."""
    return labels_of(load_corpus(corpus)).task


def shadow_trial(spec: TrialSpec) -> TrialSpec:
    """Return the shadow model's training: the target's settings on the shadow corpus, without privacy."""
    training = spec.non_private_training()
    if spec.shadow.epochs is not None:
        training = training.model_copy(update={"epochs": spec.shadow.epochs})
    # `model_copy` does not validate: here the corpus is public, and may be that of the embeddings.
    return spec.model_copy(update={"corpus": spec.shadow.corpus, "canaries": CanariesSpec(), "training": training})


def is_encoded(folder: Path) -> bool:
    """Return True if `folder` holds an encoded corpus."""
    return (folder / "meta.json").is_file()
