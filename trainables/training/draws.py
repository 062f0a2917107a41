"""Which examples each step of a trial takes: as `edp.sampling` draws them, the same on all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.distributed as dist

from edp.sampling import Epoch, group_by_user, poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import EDPSpec
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.states import has_states
from trainables.spec import TrialSpec


class Draws:
    """What a trial draws from, how much of it a step takes, and the epochs that come of it.

    Args:
        workers: that each step is sharded over.

    Raises:
        UserError: where method, unit and corpus do not fit together.
    """

    def __init__(self, corpus: EncodedCorpus, spec: TrialSpec, workers: int) -> None:
        training, private = spec.training, spec.training.method != "sgd"
        self._spec, self._workers = spec, workers
        self.users = corpus.train_users if spec.edp.unit == "user" and private else None
        """Of each training utterance, where users are drawn and clipped; all that follows then counts users."""
        self.units = corpus.size("train") if self.users is None else corpus.units(spec.edp.unit)
        """What there is to draw from."""
        self.batch_size = training.batch_in(self.units)
        if private:
            spec.check_users(corpus.own_users)
        self.clips = training.clips_in(self.units, "utterances" if self.users is None else "users")
        """N: micro-batches of a step, over all workers."""
        self.single_example = self.batch_size == self.clips and self.users is None
        """Whether no micro-batch holds more than one example."""
        self.rate = min(1.0, self.batch_size / self.units)
        """The share of them that a step takes."""
        # Every step of a full batch of whole units is the same, whatever their order, and so are its pieces.
        full = self.batch_size >= self.units and self.batch_size == self.clips and spec.edp.user_utterances is None
        self.one_order = full and spec.edp.sampling == "shuffle" and has_states(spec.model)
        """Whether every step takes the same in the same order."""
        # As `edp.hook.EDPHook.any_number`; plain SGD's batches are sharded as micro-batches are.
        self._any_number = private and (self.single_example or spec.edp.unit == "user")
        self._key = _shared_key(spec.edp) if spec.edp.sampling == "poisson" else None

    def epoch(self, number: int) -> Epoch:
        """An epoch of utterances, counted from 0; with users as the unit a micro-batch is one user's."""
        drawn = self._of_units(number)
        if self.users is None:
            return drawn
        return group_by_user(
            drawn, self.users, seed=self._spec.training.seed, max_examples=self._spec.edp.user_utterances
        )

    def _of_units(self, number: int) -> Epoch:
        sizes = {"batch_size": self.batch_size, "workers": self._workers, "epoch": number}
        if self._key is None:
            # Correlated noise is priced for examples that take part in the same step of every epoch.
            order = 0 if self.one_order or self._spec.edp.fixed_order else None
            seed = self._spec.training.seed
            return shuffled_epoch(self.units, micro_batches=self.clips, seed=seed, order=order, **sizes)
        # By epoch, so that a run that goes on from a checkpoint draws what it would have drawn.
        rng = np.random.default_rng([*self._key, number])
        if self._any_number:
            return poisson_examples(self.units, rng=rng, **sizes)
        return poisson_epoch(self.units, micro_batches=self.clips, rng=rng, **sizes)


def _shared_key(edp: EDPSpec) -> list[int]:
    """What all workers draw from and nobody else knows: Poisson's amplification needs a secret draw."""
    if edp.reproducible_noise is not None:
        return [edp.reproducible_noise, 0x504F49]
    entropy: list[Any] = [np.random.SeedSequence().entropy]
    dist.broadcast_object_list(entropy, src=0)
    return [int(entropy[0])]
