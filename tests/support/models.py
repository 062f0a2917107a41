"""Models, batches and literal clipped gradients of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edp.per_example import layer_of_parameter
from tests.support.toy import BERT, SPLITS
from trainables.config import BERTSpec, ModelSpec
from trainables.corpora.types import Splits
from trainables.features.encoded_corpus import EncodedCorpus, encode
from trainables.features.token_features import Batch, WordInputs
from trainables.models import JointModel, build_model


def build(spec: ModelSpec, corpus: EncodedCorpus, seed: int = 0) -> JointModel:
    return build_model(spec, corpus.labels, seed=seed, vocabulary_size=corpus.vocabulary_size)


def double(batch: Batch) -> Batch:
    if isinstance(batch.inputs, WordInputs):
        inputs = batch.inputs.__class__(batch.inputs.word_bt, batch.inputs.chars_uc, batch.inputs.vectors_ud.double())
        return Batch(inputs, batch.lengths_b, batch.mask_bt, batch.tags_bt, batch.intent_b)
    return batch


EXAMPLES = np.array([0, 1, 2, 3, 4, 0, 2, 4, 1, 2, 3, 0])


def batch_of(corpus, indices: np.ndarray, dtype: torch.dtype) -> Batch:
    """With keys, so that an utterance's dropout is the same in every batch."""
    batch = replace(corpus.batch("train", indices), key_b=torch.from_numpy(indices * 7919 % 1000).int())
    return replace(double(batch), key_b=batch.key_b) if dtype == torch.float64 else batch


def literal(net: JointModel, corpus, micro_batch_b: Tensor, factor_m: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Squared norms (M, K) and the weighted sum of the mean gradients, one backward pass a micro-batch."""
    parameters, layer, names = layer_of_parameter(net)
    squares_mk = torch.zeros(len(factor_m), len(names), dtype=factor_m.dtype)
    sums = [torch.zeros_like(p) for p in parameters]
    for m, factor in enumerate(factor_m):
        mine = EXAMPLES[(micro_batch_b == m).numpy()]
        if len(mine) == 0:
            continue
        gradient = torch.autograd.grad(net(batch_of(corpus, mine, factor_m.dtype)).mean(), parameters)
        for g, k, total in zip(gradient, layer, sums, strict=True):
            squares_mk[m, k] += g.square().sum()
            total += factor * g
    return squares_mk, sums


def spec_of(folder: Path, **changes: Any) -> BERTSpec:
    return BERTSpec(vocabulary=BERT.vocabulary, pretrained=str(folder), **changes)


def built(spec: BERTSpec, place: Path, splits: Splits = SPLITS) -> tuple[EncodedCorpus, JointModel]:
    corpus = encode(splits, spec, place / "corpus")
    return corpus, build_model(spec, corpus.labels, seed=0, vocabulary_size=corpus.vocabulary_size).eval()
