"""Cuts a worker's share of each step into pieces that fit into memory."""

from __future__ import annotations

import numpy as np
import torch

from edp.sampling import Indices
from trainables.data.batch import Batch
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.models import JointModel
from trainables.spec import TrialSpec
from trainables.training.draws import Draws
from trainables.training.pieces import Piece, examples_that_fit, pieces

_SAMPLE = 16
"""How many of the longest utterances tell what a piece may hold."""
_SAME_AT_ONCE = 256
"""Utterances of a piece that is cut once: the shorter their list, the more alike they are, and the less is padding."""


class Cutter:
    """Gives one worker's micro-batches as pieces, and remembers those that are the same in every step.

    Args:
        model: that will run the pieces: its memory bounds them, where the spec does not say how many examples.
        gpu_share: what this worker has of its GPU.
    """

    def __init__(
        self,
        model: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        draws: Draws,
        device: torch.device,
        gpu_share: float = 1.0,
    ) -> None:
        self._gpu_share = gpu_share
        self._model, self._corpus, self._spec, self._draws, self._device = model, corpus, spec, draws, device
        self._most: int | None = spec.training.memory_batch
        self._same: list[tuple[Piece, Batch]] | None = None

    def cut(self, micro_batches: list[Indices], examples: int, step: int) -> list[tuple[Piece, Batch | None]]:
        """The pieces of a step, and the utterances of those that are the same in every one.

        Args:
            examples: how many `micro_batches` hold together.
            step: counted from 0, over all epochs.
        """
        if self._same is not None:
            return list(self._same)
        one_order = self._draws.one_order
        most = min(self.memory_batch, max(1, -(-examples // self._spec.training.sub_chunks)))
        if one_order:
            most = min(most, _SAME_AT_ONCE)
        sums = self._draws.users is not None  # what is clipped is a user's summed gradient
        order = self._drawn_order if self._spec.edp.alpha == "paper" and step == 0 else self._lengths
        cut = pieces(micro_batches or [np.zeros(0, dtype=np.int64)], most, order, sums=sums)
        if not one_order or not self._corpus.states_in_memory:
            return [(piece, None) for piece in cut]
        self._same = [(piece, self.batch(piece.indices)) for piece in cut]
        return list(self._same)

    def batch(self, indices: Indices) -> Batch:
        """The training utterances at `indices`, on the device."""
        return self._corpus.batch("train", indices).to(self._device)

    @property
    def memory_batch(self) -> int:
        """The most examples that this worker runs at once."""
        if self._most is None:
            longest = np.argsort(self._corpus.lengths("train"), kind="stable")[-_SAMPLE:]
            self._most = examples_that_fit(self._model, self.batch(longest), self._device, self._gpu_share)
        return self._most

    def _lengths(self, indices: Indices) -> np.ndarray:
        """Chooses utterances that are run together by their length."""
        return self._corpus.lengths("train")[indices]

    def _drawn_order(self, indices: Indices) -> np.ndarray:
        """Leaves them as they were drawn: `alpha = paper` reads its scales off the first one's gradient."""
        return np.zeros(len(indices))
