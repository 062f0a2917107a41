"""Steps for loops that make their own gradients: what a sampler would deal, without looking at any data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch.distributed as dist

from edp.hook import EDPHook
from edp.sampling import Epoch, Step, group_by_user, shuffled_epoch, steps_at_rate


def steps_of(hook: EDPHook, number: int = 0) -> Iterator[Step]:
    """The steps of an epoch that fits `hook`, of micro-batches of two examples, or of one."""
    users_are_units = hook.spec.unit == "user"
    size = hook.micro_batches * (1 if hook.single_example or users_are_units else 2)
    sizes = {"batch_size": size, "micro_batches": hook.micro_batches, "workers": dist.get_world_size()}
    epoch = shuffled_epoch(size * steps_at_rate(hook.rate), seed=0, epoch=number, **sizes)
    if users_are_units:
        epoch = group_by_user(epoch, np.arange(epoch.examples).repeat(1 if hook.single_example else 2))
    return hook.steps(replace(epoch, sampling=hook.spec.sampling))  # as if everybody had been drawn


def open_step(hook: EDPHook, number: int = 0) -> None:
    """The first of `steps_of`."""
    next(steps_of(hook, number))


def open_examples(hook: EDPHook, micro_batches: list[int]) -> None:
    """A Poisson step that drew so many examples for each worker, each a micro-batch of its own."""
    numbers = iter(np.arange(sum(micro_batches)).reshape(-1, 1))
    step = [[next(numbers) for _ in range(share)] for share in micro_batches]
    examples = max(1, round(hook.micro_batches / hook.rate))
    users = np.arange(examples) if hook.spec.unit == "user" else None
    next(hook.steps(Epoch(0, "poisson", examples, hook.micro_batches, [step], users)))
