"""Train two corpora that differ by one unit side by side, and measure how far apart each step's clipped sums are.

An ε presumes that one unit moves the sum of a step by no more than the ledger charges, and only if the unit is in that
step. Both trainings run through `Trainer` and `EDPHook` as a trial does, with the secrets of one run and without noise.
Before each step they have the same weights: what one step released to the next is the same in both.

The unit's place in the other corpus is taken by blanks, whose losses are 0: the number of units is public.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edp.clipping import Clip
from edp.sampling import Indices, Step
from trainables.config import TrialSpec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.models import JointModel
from trainables.training.batches import Chunk
from trainables.training.process import new_model, pick_device
from trainables.training.trainer import Trainer


@dataclass(frozen=True)
class Neighbour:
    """A corpus, as the model of a trial reads it, and its training utterances that are the unit, or its blanks."""

    corpus: EncodedCorpus
    unit: Indices


@dataclass(frozen=True)
class Difference:
    """The difference of the clipped sums of one step, in the gradient's own unit, in the scaled space."""

    moved: float
    charged: float
    """The most that the ledger counts for the units that are left out in this step: 0 if none is in it."""
    units: int
    """Number of units of this step that are left out."""
    clip: float
    moved_by_parameter: dict[str, float]


class LoudTrainer(Trainer):
    """A trainer that multiplies the losses of utterances by numbers of their own, (E,)."""

    check_mixing = False  # what the hook would refuse is measured here
    carries_audit = False

    def __init__(self, model: JointModel, corpus: EncodedCorpus, *rest: Any) -> None:
        super().__init__(model, corpus, *rest)
        assert self.hook is not None, "only private methods have neighbours"
        self.own_hook = self.hook
        self.names = {id(p): name for name, p in self.ddp.module.named_parameters()}
        self.loud_e = np.ones(corpus.size("train"), np.float32)
        self._loud: list[Tensor] = []
        # DDP keeps the model for ever, so what the model calls must not hold the corpus, whose files would stay open.
        self.ddp.module.register_forward_hook(functools.partial(_multiplied, self._loud))

    def _backward_chunk(self, chunk: Chunk, *rest: Any, **named: Any) -> Tensor:
        self._loud[:] = [torch.from_numpy(self.loud_e[chunk.indices])]
        losses = super()._backward_chunk(chunk, *rest, **named)
        self._loud.clear()
        return losses

    def aggregate(self, step: Step) -> dict[str, Tensor]:
        """Return the aggregate of a step, by parameter."""
        self._backward(step)
        return {self.names[id(p)]: p.grad.detach().double() for p in self.own_hook.parameters if p.grad is not None}


def _multiplied(loud: list[Tensor], _model: Any, _batch: Any, loss_b: Tensor) -> Tensor:
    return loss_b * loud[0].to(loss_b) if loud else loss_b


class _KeepingClip(Clip):
    """A clip that keeps the norm of the longest gradient that it is given."""

    longest = 0.0

    def factors(self, norms_g: Tensor) -> Tensor:
        self.longest = max(self.longest, float(norms_g.max()))
        return super().factors(norms_g)


def longest_gradient(spec: TrialSpec, corpus: EncodedCorpus) -> float:
    """Return the norm of the longest gradient of a first step of `spec`, in the scaled space."""
    one = _trainer(spec, corpus)
    hook = one.own_hook
    clip = hook.clip = _KeepingClip(hook.spec, hook.micro_batches, hook.clip.dropped.device, hook.clip_state)
    one.aggregate(next(step for step in one.steps_of(0) if any(len(m) for share in step for m in share)))
    return clip.longest


def differences(
    spec: TrialSpec,
    with_it: Neighbour,
    without: Neighbour,
    *,
    loud: float = 1.0,
    silent: bool = False,
    against: bool = False,
) -> Iterator[Difference]:
    """Yield the difference of each step of a training of `spec`, in a process group of one worker.

    Args:
        without: as many units as `with_it`, with blanks in the unit's place or anywhere else.
        loud: factor of all losses. If it is large, the clip limits every gradient.
        silent: True for a unit whose own losses are 0: nothing may differ.
        against: True for a unit whose gradient reverses the direction of the mean of its micro-batch, if it can.

    Raises:
        trainables.records.job.TrialFailed: if the model cannot be trained with these settings.
    """
    one = _trainer(spec, with_it.corpus)
    other = _trainer(spec, without.corpus, one.ddp.module)
    one.loud_e[:], other.loud_e[:] = loud, loud
    other.loud_e[without.unit] = 0.0
    if against and spec.edp.unit == "example":
        one.loud_e[with_it.unit] *= -len(one.loud_e)
    if silent:
        one.loud_e[with_it.unit] = 0.0
    if spec.edp.alpha == "private":  # one release, the same in both: its own difference is a vote
        other.own_hook.alpha = one.own_hook.alpha
    for epoch in range(spec.training.epochs):
        for step, its in zip(one.steps_of(epoch), other.steps_of(epoch), strict=True):
            yield _difference(one, other, step, its, with_it.unit, silent=silent)
            one.optimizer.step()
            one.step, other.step = one.step + 1, other.step + 1
            other.ddp.module.load_state_dict(one.ddp.module.state_dict())
            other.own_hook.clip.C = one.own_hook.clip.C


def _trainer(spec: TrialSpec, corpus: EncodedCorpus, model: nn.Module | None = None) -> LoudTrainer:
    """Return a trainer without noise, with the same secrets as any other, that starts at `model` or else anew."""
    silent = spec.edp.model_copy(update={"z0": 0.0, "reproducible_noise": 0})
    spec, device = spec.model_copy(update={"edp": silent}), pick_device(spec.training)
    start = new_model(spec, corpus, device)
    if model is not None:
        start.load_state_dict(model.state_dict())
    return LoudTrainer(start, corpus, spec, device)


def _difference(
    one: LoudTrainer, other: LoudTrainer, step: Step, its: Step, unit: Indices, *, silent: bool
) -> Difference:
    hook = one.own_hook
    mechanism = hook.mechanism
    stretch = mechanism.max_alpha if mechanism.alpha_noise == "isotropic" else 1.0
    clip = float(hook.clip.C)
    with_it, without = one.aggregate(step), other.aggregate(its)
    assert hook.alpha is not None, "known after a step"
    scales = hook.alpha[hook.layer].tolist()
    moved = {
        name: float((x - without[name]).norm()) / scale * mechanism.N * stretch
        for (name, x), scale in zip(with_it.items(), scales, strict=True)
    }
    held = [bool(np.isin(micro_batch, unit).any()) for share in step for micro_batch in share]
    everybody = len(unit) == len(one.loud_e)
    units = sum(held) if everybody else int(any(held))
    # Without all units a clipped mean becomes 0, and cannot turn around.
    each = stretch if everybody else mechanism.sensitivity() / mechanism.C
    return Difference(math.hypot(*moved.values()), 0.0 if silent else units * each * clip, units, clip, moved)
