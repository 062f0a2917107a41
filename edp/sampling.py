"""Which examples a step sees, in which micro-batch, and on which worker.

Two schemes, each with the neighbour relation its accounting needs:

* `shuffle`: every example stands in exactly one step of an epoch. Positions are drawn without looking at the data, so
  replacing or zeroing out one example moves no other one. No amplification is claimed; the order may be public.
* `poisson`: every example is in a step with probability `rate`, and in a uniformly drawn micro-batch of it, both
  independently of all others. Adding or removing one example moves no other one. The draw must stay secret, since the
  amplification by sampling is lost on whoever knows it. With micro-batches of one example (`poisson_examples`) this
  is DP-SGD as Abadi et al. (2016) have it: as many micro-batches as examples were drawn, none included.

Where users are to be protected they are what is drawn, and `of_users` puts their examples in their places: a user is
what an example is above.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edp.spec import Sampling

Indices = NDArray[np.int64]
Step = list[list[Indices]]
"""A step's micro-batches, as arrays of the examples of each, dealt to the workers: a list for every worker."""


@dataclass(frozen=True)
class Epoch:
    """One pass over the training set: its steps, and how they were drawn, for `EDPHook.steps` to hold them against.

    Of a sampler of one's own, `steps` has to be what the module's docstring says of `sampling`.
    """

    number: int
    """Counted from 0."""
    sampling: Sampling
    examples: int
    """Size of the training set; examples are numbered from 0. Of `of_users`: the number of users."""
    batch_size: int
    """Examples of a step, or what is expected of them. Of `of_users`: users of a step."""
    steps: Iterable[Step]
    users: Indices | None = None
    """Of `of_users`: the user of each example."""

    @property
    def rate(self) -> float:
        """The share of the training set that a step holds, or is expected to hold."""
        return min(1.0, self.batch_size / self.examples)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)


def share_start(rank: int, micro_batches: int, workers: int) -> int:
    """The first of the micro-batches that worker `rank` of `workers` holds; shares differ by one at most."""
    return rank * micro_batches // workers


def dealt(micro_batches: list[Indices], workers: int) -> Step:
    """A step's micro-batches dealt to the workers in their order, in shares that differ by one at most."""
    ends = [share_start(rank, len(micro_batches), workers) for rank in range(workers + 1)]
    return [micro_batches[first:end] for first, end in pairwise(ends)]


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Steps of an epoch: the last one may hold fewer than `batch_size` examples.

    Examples:
        >>> steps_per_epoch(100, 32)
        4
    """
    return -(-examples // batch_size)


def steps_at_rate(rate: float) -> int:
    """`steps_per_epoch` where only the share of the examples that a batch holds is known."""
    return math.ceil(1 / rate * (1 - 1e-12))  # a third is a little less than a third, and has three steps


def shuffled_epoch(
    examples: int,
    *,
    batch_size: int,
    micro_batches: int,
    workers: int = 1,
    seed: int,
    epoch: int,
    order: int | None = None,
) -> Epoch:
    """An epoch of `micro_batches` index arrays a step; the last step's may be shorter, or empty.

    Examples:
        >>> steps = list(shuffled_epoch(10, batch_size=4, micro_batches=2, seed=0, epoch=0))
        >>> [[len(indices) for indices in step[0]] for step in steps]  # of the one worker
        [[2, 2], [2, 2], [2, 0]]
        >>> sorted(int(i) for step in steps for indices in step[0] for i in indices) == list(range(10))
        True

    Args:
        examples: size of the training set.
        batch_size: a multiple of `micro_batches`; or at least `examples`, all of which are then one step's, dealt to
            micro-batches whose sizes differ by one at most.
        workers: those that share the micro-batches.
        seed: the order is a function of seed and epoch alone, so that a resumed run sees the same one.
        epoch: counted from 0.
        order: the epoch whose order it has, where that is another one: with correlated noise (`edp.noise.banded`), all
            epochs have that of epoch 0.
    """

    def steps() -> Iterator[Step]:
        key = np.array([seed, epoch if order is None else order], dtype=np.uint64)
        permuted = np.random.Generator(np.random.Philox(key=key)).permutation(examples)
        if batch_size >= examples:
            yield dealt(np.array_split(permuted, micro_batches), workers)
            return
        size = batch_size // micro_batches
        for start in range(0, examples, batch_size):
            batch = permuted[start : start + batch_size]
            yield dealt([batch[i * size : (i + 1) * size] for i in range(micro_batches)], workers)

    return Epoch(epoch, "shuffle", examples, batch_size, steps())


def poisson_epoch(
    examples: int, *, batch_size: int, micro_batches: int, workers: int = 1, rng: np.random.Generator, epoch: int
) -> Epoch:
    """An epoch of `micro_batches` index arrays a step, of any length, for as many steps as a shuffled one has.

    Examples:
        >>> rng = np.random.default_rng()  # from the operating system's entropy: the draw stays secret
        >>> steps = list(poisson_epoch(100, batch_size=20, micro_batches=4, rng=rng, epoch=0))
        >>> len(steps), [len(step[0]) for step in steps]
        (5, [4, 4, 4, 4, 4])

    Args:
        examples: size of the training set.
        batch_size: the expected one; the rate is `batch_size / examples`, at most 1.
        workers: those that share the micro-batches.
        rng: seeded from secret entropy that all workers share. Every example gets two numbers of its own a step, one
            that decides whether it is drawn and one that decides where it stands, drawn or not: so neither depends
            on what became of another example, and who is drawn does not depend on `micro_batches`.
    """
    drawn = _poisson_steps(examples, batch_size, micro_batches, rng)
    return Epoch(epoch, "poisson", examples, batch_size, (dealt(step, workers) for step in drawn))


def poisson_examples(
    examples: int, *, batch_size: int, workers: int = 1, rng: np.random.Generator, epoch: int
) -> Epoch:
    """An epoch of micro-batches of one example each, any number of them for each worker.

    Arguments are as for `poisson_epoch`. An example is dealt by its own uniform draw.
    """
    drawn = _poisson_steps(examples, batch_size, workers, rng)
    steps = ([list(share.reshape(-1, 1)) for share in step] for step in drawn)
    return Epoch(epoch, "poisson", examples, batch_size, steps)


def _poisson_steps(examples: int, batch_size: int, places: int, rng: np.random.Generator) -> Iterator[list[Indices]]:
    """Who is drawn in each step of an epoch, by the place where they stand."""
    rate = min(1.0, batch_size / examples)
    for _ in range(steps_per_epoch(examples, batch_size)):
        draw, place = rng.random((examples, 2)).T
        drawn = np.flatnonzero(draw < rate)
        # A float below 1 times a whole number rounds to that number at most: hence the minimum.
        place_of_drawn = np.minimum((place[drawn] * places).astype(np.int64), places - 1)
        yield [drawn[place_of_drawn == i] for i in range(places)]


def of_users(drawn: Epoch, users: Indices, *, seed: int, most: int | None = None) -> Epoch:
    """An epoch of users as one of their examples: each user's micro-batch holds at most `most` of them.

    Which ones is drawn once an epoch, by seed, epoch, the user's number and how many examples the user has. So no other
    user's examples depend on one who goes, or on how much one contributes.

    Examples:
        >>> drawn = shuffled_epoch(2, batch_size=2, micro_batches=2, seed=0, epoch=0)  # two users, one a micro-batch
        >>> [[step]] = of_users(drawn, np.array([0, 1, 1, 0, 1]), seed=0, most=2)
        >>> sorted(len(examples) for examples in step)
        [2, 2]

    Args:
        drawn: of users, numbered from 0, in micro-batches of one each.
        users: the user of each example, (examples,). A user without examples has an empty micro-batch.
        seed: may be public.
        most: None: all.
    """
    by_user = np.argsort(users, kind="stable")
    end_u = np.bincount(users, minlength=drawn.examples).cumsum()

    def examples_of(user: int) -> Indices:
        own = by_user[end_u[user - 1] if user else 0 : end_u[user]]
        if most is None or len(own) <= most:
            return own
        rng = np.random.default_rng([seed, drawn.number, user])
        return own[np.sort(rng.permutation(len(own))[:most])]

    def of(micro_batch: Indices) -> Indices:
        return np.concatenate([examples_of(int(user)) for user in micro_batch] or [micro_batch])

    steps = ([[of(micro_batch) for micro_batch in share] for share in step] for step in drawn)
    return replace(drawn, steps=steps, users=users)
