"""Choose the examples of each step, and cut a worker's share of it into chunks that fit into memory.

`BatchSampler` draws a step's examples with `edp.sampling`, the same on all workers. A chunk holds several whole
micro-batches, whose gradients are clipped separately after one backward pass (`edp.per_example`). A micro-batch that is
larger than a chunk is cut into parts, whose gradients are added up before they are clipped. Chunking changes only the
order of a sum.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from edp.keyed import Ids
from edp.noise.gaussian import reproducible_key, shared_key
from edp.sampling import Epoch, Indices, group_by_user, poisson_epoch, poisson_examples, shuffled_epoch
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import has_states
from trainables.features.token_features import Batch
from trainables.models import JointModel


class BatchSampler:
    """The units that a trial draws from, the size of its steps, and its epochs.

    Args:
        workers: number of workers that share a step.
        key: the run's, which decides what Poisson sampling and `edp.user_utterances` draw (`run_key`).
        canaries: number of the audit's canaries, which are drawn besides (`edp.audit`).

    Raises:
        UserError: if method, unit and corpus do not fit together.
    """

    def __init__(self, corpus: EncodedCorpus, spec: TrialSpec, workers: int, key: bytes, canaries: int = 0) -> None:
        training, private = spec.training, spec.training.method != "sgd"
        self._spec, self._workers, self._canaries = spec, workers, canaries
        self.users = corpus.train_users if spec.edp.unit == "user" and private else None
        """User of each training utterance if users are drawn and clipped, else None. The numbers below count users."""
        self.units = corpus.size("train") if self.users is None else corpus.units(spec.edp.unit)
        """Number of units to draw from."""
        self.batch_size = training.batch_in(self.units)
        if private:
            spec.check_users(corpus.own_users)
        self.clips = training.clips_in(self.units, "utterances" if self.users is None else "users")
        """N: number of micro-batches of a step, over all workers."""
        self.single_example = self.batch_size == self.clips and self.users is None
        """True if no micro-batch holds more than one example."""
        self.rate = min(1.0, self.batch_size / self.units)
        """Share of the units that a step takes."""
        # The steps of a full batch of whole units differ only in their order, which no result depends on. With one
        # order their chunks are the same too, and are kept (`Chunker`).
        full = self.batch_size >= self.units and self.batch_size == self.clips and spec.edp.user_utterances is None
        self.one_order = full and spec.edp.sampling == "shuffle" and has_states(spec.model)
        """True if every step takes the same examples in the same order."""
        # This is `edp.hook.EDPHook.any_number`. Batches of training without privacy are shared as micro-batches are.
        self._any_number = private and (self.single_example or spec.edp.unit == "user")
        self._key, self._ids = key, corpus.ids("example")
        self._unit_ids = self._ids if self.users is None else corpus.ids("user")

    def epoch(self, number: int) -> Epoch:
        """Draw epoch `number`, counted from 0, of utterances. With users as the unit a micro-batch is one user's."""
        drawn = self._of_units(number)
        if self.users is None:
            return drawn
        most = self._spec.edp.user_utterances
        return group_by_user(drawn, self.users, max_examples=most, key=self._key, ids=self._ids)

    def _of_units(self, number: int) -> Epoch:
        """Draw an epoch of units."""
        sizes: dict[str, Any] = {"batch_size": self.batch_size, "workers": self._workers, "epoch": number}
        sizes["canaries"] = self._canaries
        if self._spec.edp.sampling == "shuffle":
            # The accounting of correlated noise assumes that an example takes part in the same step of every epoch.
            order = 0 if self.one_order or self._spec.edp.fixed_order else None
            seed = self._spec.training.seed
            return shuffled_epoch(self.units, micro_batches=self.clips, seed=seed, order=order, **sizes)
        if self._any_number:
            return poisson_examples(self.units, key=self._key, ids=self._unit_ids, **sizes)
        return poisson_epoch(self.units, micro_batches=self.clips, key=self._key, ids=self._unit_ids, **sizes)


def run_key(spec: TrialSpec) -> bytes:
    """Return the key of a run's sampling and dropout, the same on all workers, which call this at once.

    It is secret, held in this process's memory only, and drawn anew when a run is resumed. Training that is not
    private, or whose noise can be replayed, has a key that follows from its seed.
    """
    seed = spec.training.seed if spec.training.method == "sgd" else spec.edp.reproducible_noise
    return shared_key() if seed is None else reproducible_key(seed)


def mixed(*parts: int | bytes) -> int:
    """Return 63 bits that depend on all of `parts`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1


def dropout_keys(key: bytes, step: int, ids_b: Ids) -> torch.Tensor:
    """Return a key for each utterance's dropout in a step, (B,) int32: the finaliser of SplitMix64 as a hash.

    Args:
        ids_b: the utterances' ids (`edp.keyed`), (B, 4).
    """
    x = np.ascontiguousarray(ids_b).view(np.uint64)[:, 0] + np.uint64(mixed(key, step))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((x >> np.uint64(32)).astype(np.uint32).view(np.int32))


# A larger chunk is no faster on a CPU.
_CPU_BYTES = 1 << 30
_GPU_SHARE = 0.25
# Memory of the recorder's records and of gradients, over the memory that a forward pass saves.
_BACKWARD = 2.0


@dataclass(frozen=True)
class Chunk:
    """Examples that are run together."""

    indices: Indices
    micro_batch_b: Indices
    """The micro-batch of each example, counted from 0 within the chunk."""
    weight_b: np.ndarray
    """Weight of each example's loss, float32: one over the examples of its micro-batch for their mean, 1 for their sum,
    0 for padding."""
    micro_batches: int
    """Number of micro-batches. Some may be empty."""
    ends: bool
    """True: its micro-batches end with it. False: it is a part of one, which continues in the next chunk."""


def chunks(
    micro_batches: Sequence[Indices], max_examples: int, length_e: np.ndarray, *, sums: bool = False
) -> list[Chunk]:
    """Cut a worker's micro-batches into chunks of at most `max_examples` examples.

    Args:
        micro_batches: the examples of each; some may be empty.
        length_e: length of every example of the corpus, (E,). Examples of like length run together, which saves
            padding.
        sums: weight the losses of a micro-batch for their sum, not their mean.
    """
    found: list[Chunk] = []
    waiting: list[Indices] = []
    room = max_examples
    for examples in sorted(micro_batches, key=lambda indices: float(length_e[indices].sum())):
        if len(examples) > max_examples:
            by_length = examples[np.argsort(length_e[examples], kind="stable")]
            parts = np.array_split(by_length, -(-len(examples) // max_examples))
            found.extend(_part(part, len(examples), ends=part is parts[-1]) for part in parts)
            continue
        if len(examples) > room:
            found.append(_joined(waiting, length_e))
            waiting, room = [], max_examples
        room -= len(examples)
        waiting.append(examples)
    if waiting:
        found.append(_joined(waiting, length_e))
    return [replace(chunk, weight_b=np.sign(chunk.weight_b)) for chunk in found] if sums else found


def _joined(micro_batches: list[Indices], length_e: np.ndarray) -> Chunk:
    """Return a chunk of several whole micro-batches."""
    sizes = np.array([len(examples) for examples in micro_batches])
    indices, micro_batch_b = np.concatenate(micro_batches), np.repeat(np.arange(len(sizes)), sizes)
    if len(indices) == 0:
        # Every worker must reach the all-reduce, so an empty share is one example of weight 0.
        return Chunk(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32), len(sizes), True)
    # The sort is stable: micro-batches of one example each come by length already, and keep their order.
    by_length = np.argsort(length_e[indices], kind="stable")
    indices, micro_batch_b = indices[by_length], micro_batch_b[by_length]
    return Chunk(indices, micro_batch_b, (1 / sizes[micro_batch_b]).astype(np.float32), len(sizes), True)


def _part(indices: Indices, examples: int, *, ends: bool) -> Chunk:
    """Return a chunk that is a part of a micro-batch of `examples` examples."""
    weight_b = np.full(len(indices), 1 / examples, np.float32)
    return Chunk(indices, np.zeros(len(indices), np.int64), weight_b, 1, ends)


def examples_that_fit(model: nn.Module, batch: Any, device: torch.device, gpu_share: float = 1.0) -> int:
    """Return the number of examples like those of `batch` that fit into a chunk: at least 1.

    A chunk may take a GiB on a CPU, and a quarter of this worker's share of a GPU's memory. The number depends on the
    kind of machine and that share, but not on what else runs, so that a run can be repeated bit by bit.

    Args:
        gpu_share: this worker's share of its GPU; 1 or more: all of it.
    """
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        # The storage stays alive, so that no other tensor gets its address. The tensor itself may belong to the graph,
        # which would then hold itself for ever: Python's garbage collector does not see into the graph.
        saved.setdefault(x.untyped_storage().data_ptr(), x.untyped_storage())
        return x.new_empty(0)

    was_training = model.training
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model.train()(batch)
    model.train(was_training)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = sum(storage.nbytes() for place, storage in saved.items() if place not in weights)
    per_example = max(1.0, _BACKWARD * seen / len(batch))
    budget = float(_CPU_BYTES)
    if device.type == "cuda":
        budget = torch.cuda.get_device_properties(device).total_memory * _GPU_SHARE * min(1.0, gpu_share)
    return max(1, int(budget / per_example))


_SAMPLE = 16
"""Number of the longest utterances that the size of a chunk is measured on."""
_SAME_AT_ONCE = 256
"""Most examples of a chunk that every step repeats. It is cut once, and small chunks of like length need little
padding."""


class Chunker:
    """Cuts one worker's micro-batches into chunks, and keeps chunks that are the same in every step.

    Args:
        model: runs the chunks. Its memory limits them, unless the spec sets `training.memory_batch`.
        gpu_share: this worker's share of its GPU.
    """

    def __init__(
        self,
        model: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        sampler: BatchSampler,
        device: torch.device,
        gpu_share: float = 1.0,
    ) -> None:
        self._model, self._corpus, self._spec, self._sampler = model, corpus, spec, sampler
        self._device, self._gpu_share = device, gpu_share
        self._same: list[tuple[Chunk, Batch]] | None = None

    def chunk(self, micro_batches: list[Indices], step: int) -> list[tuple[Chunk, Batch | None]]:
        """Return the chunks of a step, with the utterances of those that are the same in every step.

        Args:
            step: counted from 0, over all epochs.
        """
        if self._same is not None:
            return list(self._same)
        one_order = self._sampler.one_order
        max_examples = min(self.memory_batch, _SAME_AT_ONCE) if one_order else self.memory_batch
        sums = self._sampler.users is not None  # a user's summed gradient is clipped
        length_e = self._corpus.lengths("train")
        if self._spec.edp.alpha == "paper" and step == 0:
            # Its scales are read off the gradient of the first example drawn. Equal lengths keep the drawn order.
            length_e = np.zeros_like(length_e)
        cut = chunks(micro_batches or [np.zeros(0, dtype=np.int64)], max_examples, length_e, sums=sums)
        if not one_order or not self._corpus.states_in_memory:
            return [(chunk, None) for chunk in cut]
        self._same = [(chunk, self.batch(chunk.indices)) for chunk in cut]
        return list(self._same)

    def batch(self, indices: Indices) -> Batch:
        """Return the training utterances at `indices`, on the device."""
        return self._corpus.batch("train", indices).to(self._device)

    @functools.cached_property
    def memory_batch(self) -> int:
        """Largest number of examples that this worker runs at once."""
        if self._spec.training.memory_batch is not None:
            return self._spec.training.memory_batch
        longest = np.argsort(self._corpus.lengths("train"), kind="stable")[-_SAMPLE:]
        return examples_that_fit(self._model, self.batch(longest), self._device, self._gpu_share)
