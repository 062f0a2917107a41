"""Utterances as a batch: words become what a model reads of them.

Shapes: b utterances, t tokens of each, n tokens of all, one utterance after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from edp.spec import UserError
from trainables.data.batch import Batch
from trainables.data.features import Features, Table, load_features, make_table, pad


def encode_utterances(tokens: Sequence[Sequence[str]], folder: Path | Features) -> Batch:
    """Utterances that are in no corpus as an unlabelled batch.

    Where an utterance is too long for an encoder (`WordPieces.max_pieces`), the batch's lengths say how many
    tokens it reads.

    Args:
        folder: `features/` of an encoded corpus or a released model, or what `load_features` read there.

    Raises:
        UserError: for no utterances, or one without tokens.
    """
    if not tokens or not all(tokens):
        raise UserError("utterances: one has no tokens, or there is none; allowed: at least one, each with a token")
    features = load_features(folder) if isinstance(folder, Path) else folder
    ids: dict[str, int] = {}
    words_n = np.array([ids.setdefault(word, len(ids)) for utterance in tokens for word in utterance])
    return make_batch(make_table(features, list(ids)), words_n, np.array([len(utterance) for utterance in tokens]))


def make_batch(
    table: Table,
    words_n: np.ndarray,
    lengths_b: np.ndarray,
    tags_n: np.ndarray | None = None,
    intent_b: np.ndarray | None = None,
) -> Batch:
    """A batch of utterances given one after the other."""
    inputs, read_b = table.inputs(words_n, lengths_b)
    steps = int(read_b.max())
    mask_bt = np.arange(steps) < read_b[:, None]
    tags_bt = None if tags_n is None else np.where(mask_bt, pad(tags_n, lengths_b)[:, :steps], 0)
    return Batch(
        inputs,
        torch.from_numpy(read_b.astype(np.int64)),
        torch.from_numpy(mask_bt),
        None if tags_bt is None else torch.from_numpy(tags_bt),
        None if intent_b is None else torch.from_numpy(intent_b.astype(np.int64)),
    )
