"""Choose the examples of each step, and cut a worker's share of it into chunks that fit into memory.

`BatchSampler` draws a step's examples with `edp.sampling`, the same on all workers. A chunk holds several whole
micro-batches, whose gradients one backward pass clips separately (`edp.per_example`), or a part of one micro-batch
that is larger than a chunk: the gradients of its parts are added up before they are clipped. Chunking changes only
the order of a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from edp.sampling import Epoch, Indices, group_by_user, poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import EDPSpec
from trainables.config import TrialSpec
from trainables.features.batch import Batch
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.states import has_states
from trainables.models import JointModel


class BatchSampler:
    """The units that a trial draws from, the size of its steps, and the epochs that result.

    Args:
        workers: number of workers that share a step.

    Raises:
        UserError: where method, unit and corpus do not fit together.
    """

    def __init__(self, corpus: EncodedCorpus, spec: TrialSpec, workers: int) -> None:
        training, private = spec.training, spec.training.method != "sgd"
        self._spec, self._workers = spec, workers
        self.users = corpus.train_users if spec.edp.unit == "user" and private else None
        """User of each training utterance, where users are drawn and clipped; the numbers below then count users."""
        self.units = corpus.size("train") if self.users is None else corpus.units(spec.edp.unit)
        """Number of units to draw from."""
        self.batch_size = training.batch_in(self.units)
        if private:
            spec.check_users(corpus.own_users)
        self.clips = training.clips_in(self.units, "utterances" if self.users is None else "users")
        """N: micro-batches of a step, over all workers."""
        self.single_example = self.batch_size == self.clips and self.users is None
        """True where no micro-batch holds more than one example."""
        self.rate = min(1.0, self.batch_size / self.units)
        """Share of the units that a step takes."""
        # Every step of a full batch of whole units is the same, whatever their order, and so are its chunks.
        full = self.batch_size >= self.units and self.batch_size == self.clips and spec.edp.user_utterances is None
        self.one_order = full and spec.edp.sampling == "shuffle" and has_states(spec.model)
        """True where every step takes the same examples in the same order."""
        # As `edp.hook.EDPHook.any_number`; plain SGD's batches are shared as micro-batches are.
        self._any_number = private and (self.single_example or spec.edp.unit == "user")
        self._key = _shared_key(spec.edp) if spec.edp.sampling == "poisson" else None

    def epoch(self, number: int) -> Epoch:
        """Draw an epoch of utterances, counted from 0; with users as the unit a micro-batch is one user's."""
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
    """Return the secret key that all workers draw from: Poisson's amplification needs a secret draw."""
    if edp.reproducible_noise is not None:
        return [edp.reproducible_noise, 0x504F49]
    entropy: list[Any] = [np.random.SeedSequence().entropy]
    dist.broadcast_object_list(entropy, src=0)
    return [int(entropy[0])]


_CPU_BYTES = 1 << 30
_GPU_SHARE = 0.25
# Memory of the book's notes and of gradients, over the memory that a forward pass saves.
_BACKWARD = 2.0


@dataclass(frozen=True)
class Chunk:
    """Examples that are run together."""

    indices: Indices
    micro_batch_b: Indices
    """The micro-batch of each, counted from 0 within the chunk."""
    weight_b: np.ndarray
    """Weight of each one's loss, float32: one over the examples of its micro-batch for their mean, or 1 for their sum;
    0 for padding."""
    micro_batches: int
    """Number of micro-batches, some perhaps empty."""
    ends: bool
    """True where its micro-batches end with it; False: it is a part of one, which continues in the next chunk."""


def chunks(
    micro_batches: Sequence[Indices], max_examples: int, order: Callable[[Indices], np.ndarray], *, sums: bool = False
) -> list[Chunk]:
    """Cut a worker's micro-batches into chunks of at most `max_examples` examples.

    Args:
        micro_batches: the examples of each; some may be empty.
        order: returns the sizes of examples; examples of like size run together, which saves padding.
        sums: weight a micro-batch's losses for their sum, not their mean.
    """
    found: list[Chunk] = []
    waiting: list[Indices] = []

    def end() -> None:
        if waiting:
            found.append(_joined(waiting, order))
            waiting.clear()

    room = max_examples
    for examples in sorted(micro_batches, key=lambda indices: float(order(indices).sum())):
        if len(examples) > max_examples:
            sorted_examples = examples[np.argsort(order(examples), kind="stable")]
            parts = np.array_split(sorted_examples, -(-len(examples) // max_examples))
            found.extend(_part(part, len(examples), ends=part is parts[-1]) for part in parts)
            continue
        if len(examples) > room:
            end()
            room = max_examples
        room -= len(examples)
        waiting.append(examples)
    end()
    return [replace(chunk, weight_b=np.sign(chunk.weight_b)) for chunk in found] if sums else found


def _joined(micro_batches: list[Indices], order: Callable[[Indices], np.ndarray]) -> Chunk:
    sizes = np.array([len(examples) for examples in micro_batches])
    indices, micro_batch_b = np.concatenate(micro_batches), np.repeat(np.arange(len(sizes)), sizes)
    if len(indices) == 0:
        # Every worker must reach the all-reduce: nothing at all is one example of weight 0.
        return Chunk(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32), len(sizes), True)
    # By size, unless each is a micro-batch of its own: these come by size already, and stay in their order.
    by_size = np.argsort(order(indices), kind="stable")
    indices, micro_batch_b = indices[by_size], micro_batch_b[by_size]
    return Chunk(indices, micro_batch_b, (1 / sizes[micro_batch_b]).astype(np.float32), len(sizes), True)


def _part(indices: Indices, examples: int, *, ends: bool) -> Chunk:
    weight_b = np.full(len(indices), 1 / examples, np.float32)
    return Chunk(indices, np.zeros(len(indices), np.int64), weight_b, 1, ends)


def examples_that_fit(model: nn.Module, batch: Any, device: torch.device, gpu_share: float = 1.0) -> int:
    """Return the number of examples like those of `batch` that fit into a chunk: at least 1.

    A GiB on a CPU, where larger chunks are no faster, and a quarter of what this worker has of a GPU's memory. It
    depends on the kind of machine and that share, not on what else runs: a run can be repeated bit by bit.

    Args:
        gpu_share: the worker's share of its GPU, 1 or more for all of it.
    """
    saved: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    was_training = model.training
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model.train()(batch)
    model.train(was_training)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = sum(x.untyped_storage().nbytes() for place, x in saved.items() if place not in weights)
    per_example = max(1.0, _BACKWARD * seen / len(batch))
    budget = float(_CPU_BYTES)
    if device.type == "cuda":
        budget = torch.cuda.get_device_properties(device).total_memory * _GPU_SHARE * min(1.0, gpu_share)
    return max(1, int(budget / per_example))


_SAMPLE = 16
"""Number of the longest utterances that the size of a chunk is measured on."""
_SAME_AT_ONCE = 256
"""Size of a chunk that every step repeats: the shorter the sorted list, the more alike its lengths, the less
padding."""


class Chunker:
    """Cut one worker's micro-batches into chunks, and keep the chunks that are the same in every step.

    Args:
        model: runs the chunks; its memory limits them, unless the spec gives a number of examples.
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
        self._gpu_share = gpu_share
        self._model, self._corpus, self._spec, self._sampler, self._device = model, corpus, spec, sampler, device
        self._max_examples: int | None = spec.training.memory_batch
        self._same: list[tuple[Chunk, Batch]] | None = None

    def chunk(self, micro_batches: list[Indices], examples: int, step: int) -> list[tuple[Chunk, Batch | None]]:
        """Return the chunks of a step, and the utterances of those that are the same in every one.

        Args:
            examples: number of examples in all `micro_batches`.
            step: counted from 0, over all epochs.
        """
        if self._same is not None:
            return list(self._same)
        one_order = self._sampler.one_order
        max_examples = min(self.memory_batch, max(1, -(-examples // self._spec.training.sub_chunks)))
        if one_order:
            max_examples = min(max_examples, _SAME_AT_ONCE)
        sums = self._sampler.users is not None  # what is clipped is a user's summed gradient
        order = self._drawn_order if self._spec.edp.alpha == "paper" and step == 0 else self._lengths
        cut = chunks(micro_batches or [np.zeros(0, dtype=np.int64)], max_examples, order, sums=sums)
        if not one_order or not self._corpus.states_in_memory:
            return [(chunk, None) for chunk in cut]
        self._same = [(chunk, self.batch(chunk.indices)) for chunk in cut]
        return list(self._same)

    def batch(self, indices: Indices) -> Batch:
        """Return the training utterances at `indices`, on the device."""
        return self._corpus.batch("train", indices).to(self._device)

    @property
    def memory_batch(self) -> int:
        """Largest number of examples that this worker runs at once."""
        if self._max_examples is None:
            longest = np.argsort(self._corpus.lengths("train"), kind="stable")[-_SAMPLE:]
            self._max_examples = examples_that_fit(self._model, self.batch(longest), self._device, self._gpu_share)
        return self._max_examples

    def _lengths(self, indices: Indices) -> np.ndarray:
        """Return lengths as sort keys, so that utterances of like length run together."""
        return self._corpus.lengths("train")[indices]

    def _drawn_order(self, indices: Indices) -> np.ndarray:
        """Return equal sort keys, which keep the drawn order: `alpha = paper` reads its scales off the first example's
        gradient."""
        return np.zeros(len(indices))
