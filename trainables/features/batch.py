"""A batch of utterances as tensors: the input of a model, without anything that needs a vocabulary.

Shapes: b utterances, t tokens, u unique words of the batch, c characters, d embedding, s sub-words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class WordInputs:
    """CLC's inputs: each token names a row of the batch's table of unique words, so that each is looked at
    once.
    """

    word_bt: Tensor  # int64, rows of the two tables; 0 where padded
    chars_uc: Tensor  # int64, 0 beyond the word
    vectors_ud: Tensor  # float32

    def to(self, device: torch.device | str) -> WordInputs:
        return WordInputs(self.word_bt.to(device), self.chars_uc.to(device), self.vectors_ud.to(device))


@dataclass(frozen=True)
class PieceInputs:
    """BERT's inputs: sub-words between [CLS] and [SEP], and the place of each token's first one."""

    piece_bs: Tensor  # int64
    piece_mask_bs: Tensor  # bool
    first_bt: Tensor  # int64, positions in S; 0 where padded
    pieces_b: Tensor  # int64, how many each utterance has, at least 2; always on the CPU

    def to(self, device: torch.device | str) -> PieceInputs:
        return PieceInputs(
            self.piece_bs.to(device), self.piece_mask_bs.to(device), self.first_bt.to(device), self.pieces_b
        )


@dataclass(frozen=True)
class StateInputs:
    """The inputs of heads on a frozen encoder: whitened states, and a constant after them."""

    token_nd: Tensor  # float32, the tokens of all utterances, one after the other: no padding
    sentence_bd: Tensor  # float32
    kept: dict[str, Any] = field(default_factory=dict)  # results that a repeated batch need not compute again

    def to(self, device: torch.device | str) -> StateInputs:
        if self.token_nd.device == torch.device(device):
            return self
        return StateInputs(self.token_nd.to(device), self.sentence_bd.to(device))


@dataclass(frozen=True)
class Batch:
    """Utterances padded to the longest; labels are None where utterances came without."""

    inputs: WordInputs | PieceInputs | StateInputs
    lengths_b: Tensor  # int64, at least 1; always on the CPU, where packing wants them: no wait for a GPU
    mask_bt: Tensor  # bool, True on tokens
    tags_bt: Tensor | None = None  # int64, 0 where padded
    intent_b: Tensor | None = None  # int64
    key_b: Tensor | None = None  # int32, keys of each utterance's dropout; None: PyTorch's generator draws

    def __len__(self) -> int:
        return len(self.lengths_b)

    def to(self, device: torch.device | str) -> Batch:
        """Return the same batch on `device`."""
        return replace(
            self,
            inputs=self.inputs.to(device),
            mask_bt=self.mask_bt.to(device),
            tags_bt=None if self.tags_bt is None else self.tags_bt.to(device),
            intent_b=None if self.intent_b is None else self.intent_b.to(device),
            key_b=None if self.key_b is None else self.key_b.to(device),
        )
