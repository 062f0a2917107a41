"""Batches of utterances as tensors, the input of models.

Shapes: b utterances, t tokens, u unique words of the batch, c characters, d embedding, s sub-words.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class WordInputs:
    """The inputs of CLC: a table of the batch's unique words, so that each is processed once, and rows of it."""

    word_bt: Tensor  # int64, the row of each token in the two tables; 0 in the padding
    chars_uc: Tensor  # int64, 0 beyond the word
    vectors_ud: Tensor  # float32

    def to(self, device: torch.device | str) -> WordInputs:
        """Return the inputs on `device`."""
        return WordInputs(self.word_bt.to(device), self.chars_uc.to(device), self.vectors_ud.to(device))

    def select(self, index: list[int], lengths_b: Tensor) -> WordInputs:
        """Return the inputs of some utterances of a batch whose utterances have these lengths."""
        longest = int(lengths_b[index].max())
        return WordInputs(self.word_bt[index, :longest], self.chars_uc, self.vectors_ud)


@dataclass(frozen=True)
class PieceInputs:
    """The inputs of an encoder: sub-words with special ones around them, and where each token's begin and end."""

    piece_bs: Tensor  # int64
    piece_mask_bs: Tensor  # bool
    first_bt: Tensor  # int64, positions in S; 0 in the padding
    last_bt: Tensor  # int64, likewise
    pieces_b: Tensor  # int64, number of sub-words of each utterance, including special ones; always on the CPU

    def to(self, device: torch.device | str) -> PieceInputs:
        """Return the inputs on `device`."""
        return PieceInputs(
            self.piece_bs.to(device),
            self.piece_mask_bs.to(device),
            self.first_bt.to(device),
            self.last_bt.to(device),
            self.pieces_b,
        )

    def select(self, index: list[int], lengths_b: Tensor) -> PieceInputs:
        """Return the inputs of some utterances, as wide as before, of a batch whose utterances have these lengths."""
        return PieceInputs(
            self.piece_bs[index],
            self.piece_mask_bs[index],
            self.first_bt[index],
            self.last_bt[index],
            self.pieces_b[index],
        )


@dataclass(frozen=True)
class StateInputs:
    """The inputs of heads on a frozen encoder: whitened states, each followed by a constant."""

    token_nd: Tensor  # float32, the tokens of all utterances in turn, without padding
    sentence_bd: Tensor  # float32
    kept: dict[str, Any] = field(default_factory=dict)  # a cache of results, for batches that are repeated

    def to(self, device: torch.device | str) -> StateInputs:
        """Return the inputs on `device`."""
        if self.token_nd.device == torch.device(device):
            return self
        return StateInputs(self.token_nd.to(device), self.sentence_bd.to(device))

    def select(self, index: list[int], lengths_b: Tensor) -> StateInputs:
        """Return the inputs of some utterances of a batch whose utterances have these lengths."""
        tokens = self.token_nd.split(lengths_b.tolist())
        return StateInputs(torch.cat([tokens[i] for i in index]), self.sentence_bd[index])


@dataclass(frozen=True)
class Batch:
    """Utterances, padded to the longest; labels are None if they are unknown."""

    inputs: WordInputs | PieceInputs | StateInputs
    lengths_b: Tensor  # int64, at least 1; always on the CPU: packing needs them there, and need not wait for a GPU
    mask_bt: Tensor  # bool, True on tokens
    tags_bt: Tensor | None = None  # int64, 0 in the padding
    intent_b: Tensor | None = None  # int64
    key_b: Tensor | None = None  # int32, keys of each utterance's dropout; None: use PyTorch's generator

    def __len__(self) -> int:
        return len(self.lengths_b)

    def select_examples(self, index: list[int]) -> Batch:
        """Return some of the utterances. `edp.mixing` asks for them, to run one without the others."""
        # The packing of CLC expects no padding beyond the longest.
        width = int(self.lengths_b[index].max()) if isinstance(self.inputs, WordInputs) else self.mask_bt.shape[1]
        return Batch(
            self.inputs.select(index, self.lengths_b),
            self.lengths_b[index],
            self.mask_bt[index, :width],
            None if self.tags_bt is None else self.tags_bt[index, :width],
            None if self.intent_b is None else self.intent_b[index],
            None if self.key_b is None else self.key_b[index],
        )

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on `device`."""
        return replace(
            self,
            inputs=self.inputs.to(device),
            mask_bt=self.mask_bt.to(device),
            tags_bt=None if self.tags_bt is None else self.tags_bt.to(device),
            intent_b=None if self.intent_b is None else self.intent_b.to(device),
            key_b=None if self.key_b is None else self.key_b.to(device),
        )
