"""Which examples a step sees, and in which micro-batch.

Two schemes, each with the neighbour relation its accounting needs:

* `shuffle`: every example stands in exactly one step of an epoch. Positions are drawn without looking at the data, so
  replacing or zeroing out one example moves no other one. No amplification is claimed; the order may be public.
* `poisson`: every example is in a step with probability `rate`, and in a uniformly drawn micro-batch of it, both
  independently of all others. Adding or removing one example moves no other one. The draw must stay secret, since the
  amplification by sampling is lost on whoever knows it. With micro-batches of one example (`poisson_examples`) this
  is DP-SGD as Abadi et al. (2016) have it: as many micro-batches as examples were drawn, none included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Steps of an epoch: the last one may hold fewer than `batch_size` examples."""
    return -(-examples // batch_size)


def steps_at_rate(rate: float) -> int:
    """`steps_per_epoch` where only the share of the examples that a batch holds is known."""
    return math.ceil(1 / rate * (1 - 1e-12))  # a third is a little less than a third, and has three steps


def shuffled_epoch(
    examples: int, *, batch_size: int, micro_batches: int, seed: int, epoch: int
) -> Iterator[list[Indices]]:
    """Yields one list of `micro_batches` index arrays a step; the last step's may be shorter, or empty.

    Args:
        examples: size of the training set.
        batch_size: a multiple of `micro_batches`; or at least `examples`, all of which are then one step's, dealt to
            micro-batches whose sizes differ by one at most.
        seed, epoch: the order is a function of these two alone, so that a resumed run sees the same one. Where noise
            is correlated (`edp.noise.banded`), every epoch takes that of epoch 0.
    """
    order = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64))).permutation(examples)
    if batch_size >= examples:
        yield np.array_split(order, micro_batches)
        return
    size = batch_size // micro_batches
    for start in range(0, examples, batch_size):
        batch = order[start : start + batch_size]
        yield [batch[i * size : (i + 1) * size] for i in range(micro_batches)]


def poisson_epoch(
    examples: int, *, batch_size: int, micro_batches: int, rng: np.random.Generator
) -> Iterator[list[Indices]]:
    """Yields one list of `micro_batches` index arrays a step, of any length, for as many steps as an epoch has.

    Args:
        examples: size of the training set.
        batch_size: the expected one; the rate is `batch_size / examples`, at most 1.
        rng: seeded from secret entropy that all workers share. Every example gets two numbers of its own a step, one
            that decides whether it is drawn and one that decides where it stands, drawn or not: so neither depends
            on what became of another example, and who is drawn does not depend on `micro_batches`.
    """
    rate = min(1.0, batch_size / examples)
    for _ in range(steps_per_epoch(examples, batch_size)):
        draw, place = rng.random((examples, 2)).T
        drawn = np.flatnonzero(draw < rate)
        # A float below 1 times a whole number rounds to that number at most: hence the minimum.
        micro_batch = np.minimum((place[drawn] * micro_batches).astype(np.int64), micro_batches - 1)
        yield [drawn[micro_batch == i] for i in range(micro_batches)]


def poisson_examples(
    examples: int, *, batch_size: int, workers: int, rng: np.random.Generator
) -> Iterator[list[list[Indices]]]:
    """Yields a step's micro-batches of one example each, dealt to the workers: for each worker a list of any length.

    Args:
        examples, batch_size, rng: as for `poisson_epoch`. An example is dealt by its own uniform draw.
    """
    for dealt in poisson_epoch(examples, batch_size=batch_size, micro_batches=workers, rng=rng):
        yield [list(drawn.reshape(-1, 1)) for drawn in dealt]
