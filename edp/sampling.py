"""Sampling: the examples of each step, by micro-batch and worker.

Two schemes, each with the neighbour relation that its accounting needs:

* `shuffle`: every example is in exactly one step of an epoch. Positions are drawn without looking at the data, so
  replacing or zeroing out one example moves no other one. No amplification is claimed; the order may be public.
* `poisson`: every example is in a step with probability `rate`, and in a uniformly drawn micro-batch of it, both
  independently of all others. Adding or removing one example moves no other one. The draw must stay secret: against
  an attacker who knows it, sampling amplifies nothing. With micro-batches of one example (`poisson_examples`) this is
  DP-SGD as in Abadi et al. (2016): as many micro-batches as examples were drawn, possibly none.

Poisson draws come from a secret key that all workers share (`edp.shared_key`). An example's draws depend on the
key and its id alone.

The canaries of an audit (`edp.audit`) are units that are drawn besides the examples, at the same rate and by the same
code. They change neither the rate nor what is drawn of the examples.

To protect users, draw users instead of examples; `group_by_user` then replaces each user by the user's examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray

from edp.keyed import Ids, derived_key, numbers, uniforms
from edp.spec import Sampling

Indices = NDArray[np.int64]
Step = list[list[Indices]]
"""A step: for every worker the list of its micro-batches, each an array of example numbers."""


@dataclass(frozen=True)
class Epoch:
    """One pass over the training set: its steps, and how they were drawn, which `EDPHook.steps` checks.

    A custom sampler must draw `steps` as the module's docstring says of `sampling`.
    """

    number: int
    """Counted from 0."""
    sampling: Sampling
    examples: int
    """Size of the training set; examples are numbered from 0. After `group_by_user`: the number of users."""
    batch_size: int
    """Examples of a step, or their expected number. After `group_by_user`: users of a step."""
    steps: Iterable[Step]
    users: Indices | None = None
    """The user of each example, after `group_by_user`."""
    canaries: Sequence[list[Indices]] = ()
    """The canaries of each step: for every worker an array of their numbers, from 0. Empty without an audit."""

    @property
    def rate(self) -> float:
        """Share of the training set that a step holds, or is expected to hold."""
        return min(1.0, self.batch_size / self.examples)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)


def share_start(rank: int, micro_batches: int, workers: int) -> int:
    """Return the number of the first micro-batch of worker `rank`; the workers' shares differ by one at most."""
    return rank * micro_batches // workers


def sharded(micro_batches: list[Indices], workers: int) -> Step:
    """Return a step's micro-batches split over the workers in order, in shares that differ by one at most."""
    ends = [share_start(rank, len(micro_batches), workers) for rank in range(workers + 1)]
    return [micro_batches[first:end] for first, end in pairwise(ends)]


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Return the number of steps of an epoch; the last one may hold fewer than `batch_size` examples.

    Examples:
        >>> steps_per_epoch(100, 32)
        4
    """
    return -(-examples // batch_size)


def steps_at_rate(rate: float) -> int:
    """Return `steps_per_epoch` from the share of the examples that a batch holds."""
    return math.ceil(1 / rate * (1 - 1e-12))  # the float nearest to 1/3 is below it, and must give three steps


def shuffled_epoch(
    examples: int,
    *,
    batch_size: int,
    micro_batches: int,
    workers: int = 1,
    seed: int,
    epoch: int,
    order: int | None = None,
    canaries: int = 0,
) -> Epoch:
    """Return a shuffled epoch with `micro_batches` index arrays a step; the last step's may be shorter, or empty.

    Examples:
        >>> steps = list(shuffled_epoch(10, batch_size=4, micro_batches=2, seed=0, epoch=0))
        >>> [[len(indices) for indices in step[0]] for step in steps]  # of the one worker
        [[2, 2], [2, 2], [2, 0]]
        >>> sorted(int(i) for step in steps for indices in step[0] for i in indices) == list(range(10))
        True

    Args:
        examples: size of the training set.
        batch_size: a multiple of `micro_batches`; or at least `examples`, which are then one step, in micro-batches
            whose sizes differ by one at most.
        workers: they share the micro-batches.
        seed: the order is a function of seed and epoch alone, so that a resumed run sees the same one.
        epoch: counted from 0.
        order: the epoch whose order to use, if another one's: correlated noise (`edp.noise.banded`) needs that of
            epoch 0 in all epochs.
        canaries: number of an audit's canaries. Each is in one step.
    """

    def permutation(units: int) -> Indices:
        key = np.array([seed, epoch if order is None else order], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key)).permutation(units)

    def steps() -> Iterator[Step]:
        permuted = permutation(examples)
        if batch_size >= examples:
            yield sharded(np.array_split(permuted, micro_batches), workers)
            return
        size = batch_size // micro_batches
        for start in range(0, examples, batch_size):
            batch = permuted[start : start + batch_size]
            yield sharded([batch[i * size : (i + 1) * size] for i in range(micro_batches)], workers)

    planted = np.array_split(permutation(canaries), steps_per_epoch(examples, batch_size)) if canaries else []
    shares = [np.array_split(of_step, workers) for of_step in planted]
    return Epoch(epoch, "shuffle", examples, batch_size, steps(), canaries=shares)


def poisson_epoch(
    examples: int,
    *,
    batch_size: int,
    micro_batches: int,
    workers: int = 1,
    key: bytes,
    epoch: int,
    ids: Ids | None = None,
    canaries: int = 0,
) -> Epoch:
    """Return a Poisson sampled epoch with `micro_batches` index arrays a step, of any length.

    It has as many steps as a shuffled one.

    Examples:
        >>> key = bytes(32)  # of all workers: edp.shared_key()
        >>> steps = list(poisson_epoch(100, batch_size=20, micro_batches=4, key=key, epoch=0))
        >>> len(steps), [len(step[0]) for step in steps]
        (5, [4, 4, 4, 4, 4])

    Args:
        examples: size of the training set.
        batch_size: the expected one; the rate is `batch_size / examples`, at most 1.
        workers: they share the micro-batches.
        key: 32 secret bytes, the same on all workers and in all epochs (`edp.shared_key`).
        ids: the examples' ids (`edp.keyed`); None: their numbers.
        canaries: number of an audit's canaries.
    """
    drawn, planted = _poisson_steps(examples, batch_size, micro_batches, key, epoch, ids, canaries)
    shares = [[np.concatenate(share) for share in sharded(step, workers)] for step in planted]
    return Epoch(epoch, "poisson", examples, batch_size, (sharded(step, workers) for step in drawn), canaries=shares)


def poisson_examples(
    examples: int,
    *,
    batch_size: int,
    workers: int = 1,
    key: bytes,
    epoch: int,
    ids: Ids | None = None,
    canaries: int = 0,
) -> Epoch:
    """Return a Poisson sampled epoch of micro-batches of one example each, any number of them for each worker.

    Arguments are as for `poisson_epoch`. Each example's own draw decides its worker.
    """
    drawn, planted = _poisson_steps(examples, batch_size, workers, key, epoch, ids, canaries)
    steps = ([list(share.reshape(-1, 1)) for share in step] for step in drawn)
    return Epoch(epoch, "poisson", examples, batch_size, steps, canaries=planted)


def _poisson_steps(
    examples: int, batch_size: int, places: int, key: bytes, epoch: int, ids: Ids | None, canaries: int
) -> tuple[Iterator[list[Indices]], list[list[Indices]]]:
    """Return the drawn examples of each step of an epoch, an array for each of `places`, and the drawn canaries."""
    rate, steps = min(1.0, batch_size / examples), steps_per_epoch(examples, batch_size)
    known = numbers(examples + canaries)  # a digest is none of these, but for once in 2^64 corpora
    if ids is not None:
        known[:examples] = ids
    step_p, unit_p, place_p = _participations(rate, steps, key, epoch, known)
    # A float up to 1 times a whole number may be that number: hence the minimum.
    place_p = np.minimum((place_p * places).astype(np.int64), places - 1)
    order = np.lexsort((unit_p, place_p, step_p))
    ends = np.searchsorted((step_p * places + place_p)[order], np.arange(1, steps * places))
    parts = np.split(unit_p[order], ends)

    def of_steps(first: int, end: int) -> Iterator[list[Indices]]:
        for step in range(steps):
            mine = parts[step * places : (step + 1) * places]
            yield [units[(first <= units) & (units < end)] - first for units in mine]

    return of_steps(0, examples), list(of_steps(examples, examples + canaries)) if canaries else []


def _participations(
    rate: float, steps: int, key: bytes, epoch: int, ids: Ids
) -> tuple[Indices, Indices, NDArray[np.float64]]:
    """Return the steps that examples are drawn in, in an epoch: the step, the example and a uniform number of each.

    The number of steps until an example is drawn again has a geometric law. So an example needs two numbers for each
    step that it is in, and not for each step of the epoch.
    """
    active, last = np.arange(len(ids)), np.full(len(ids), -1)
    found: list[tuple[Indices, Indices, NDArray[np.float64]]] = []
    with np.errstate(divide="ignore"):  # at a rate of 1 all gaps are 0
        log_miss = np.log1p(-rate)
    for block in count():
        if not len(active):
            break
        numbers_n8 = uniforms(derived_key(key, "poisson", epoch, block), ids[active])
        for gap_n, place_n in zip(numbers_n8.T[:4], numbers_n8.T[4:], strict=True):
            last = last + 1 + np.minimum(np.log(gap_n) / log_miss, steps).astype(np.int64)
            drawn = last < steps
            found.append((last[drawn], active[drawn], place_n[drawn]))
            last = np.where(drawn, last, steps)
        active, last = active[last < steps], last[last < steps]
    step_p, example_p, place_p = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return step_p, example_p, place_p


def group_by_user(
    drawn: Epoch,
    users: Indices,
    *,
    max_examples: int | None = None,
    key: bytes = b"",
    ids: Ids | None = None,
) -> Epoch:
    """Return an epoch of users as one of their examples: a user's micro-batch holds at most `max_examples` of them.

    They are drawn once an epoch, by the key and the ids of the user's own examples. So one user's examples do not
    depend on any other user.

    Examples:
        >>> drawn = shuffled_epoch(2, batch_size=2, micro_batches=2, seed=0, epoch=0)  # two users, one a micro-batch
        >>> [[step]] = group_by_user(drawn, np.array([0, 1, 1, 0, 1]), key=bytes(32), max_examples=2)
        >>> sorted(len(examples) for examples in step)
        [2, 2]

    Args:
        drawn: an epoch of users, numbered from 0, in micro-batches of one each.
        users: the user of each example, (examples,). A user without examples has an empty micro-batch.
        max_examples: None: all.
        key: 32 bytes, with `max_examples`. They must be secret if `ids` are not given.
        ids: the examples' ids (`edp.keyed`); None: their numbers.
    """
    by_user = np.argsort(users, kind="stable")
    if max_examples is not None:
        ids = numbers(len(users)) if ids is None else ids
        by_user = np.lexsort((uniforms(derived_key(key, "users", drawn.number), ids)[:, 0], users))
    end_u = np.bincount(users, minlength=drawn.examples).cumsum()

    def examples_of(user: int) -> Indices:
        return np.sort(by_user[end_u[user - 1] if user else 0 : end_u[user]][:max_examples])

    def of(micro_batch: Indices) -> Indices:
        return np.concatenate([examples_of(int(user)) for user in micro_batch] or [micro_batch])

    steps = ([[of(micro_batch) for micro_batch in share] for share in step] for step in drawn)
    return replace(drawn, steps=steps, users=users)
