"""What the accounting assumes of the samplers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edp.sampling import (
    Epoch,
    Indices,
    poisson_epoch,
    poisson_examples,
    share_start,
    shuffled_epoch,
    steps_per_epoch,
)


def whole(epoch: Epoch) -> list[list[Indices]]:
    """Each step's micro-batches, whoever has them."""
    return [[micro_batch for share in step for micro_batch in share] for step in epoch]


@pytest.mark.parametrize("examples", [1, 7, 32, 33, 100])
def test_a_shuffled_epoch_holds_every_example_once_in_full_micro_batches(examples: int) -> None:
    steps = whole(shuffled_epoch(examples, batch_size=32, micro_batches=8, seed=3, epoch=1))
    assert len(steps) == steps_per_epoch(examples, 32)
    assert all(len(step) == 8 for step in steps)
    assert all(len(micro_batch) == 4 for step in steps[:-1] for micro_batch in step)
    seen = np.concatenate([micro_batch for step in steps for micro_batch in step])
    assert sorted(seen) == list(range(examples))


@pytest.mark.parametrize("batch_size", [53, 10_000])
@pytest.mark.parametrize("micro_batches", [1, 8, 53])
def test_a_batch_of_all_examples_is_dealt_evenly_whatever_their_number(batch_size: int, micro_batches: int) -> None:
    (step,) = whole(shuffled_epoch(53, batch_size=batch_size, micro_batches=micro_batches, seed=3, epoch=1))
    assert sorted(np.concatenate(step)) == list(range(53))
    assert {len(micro_batch) for micro_batch in step} <= {53 // micro_batches, 53 // micro_batches + 1}
    assert len(step) == micro_batches


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_micro_batches_are_dealt_in_their_order_in_shares_that_differ_by_one_at_most(workers: int) -> None:
    sizes = {"batch_size": 16, "micro_batches": 8, "seed": 0, "epoch": 0}
    alone = whole(shuffled_epoch(40, **sizes))
    for step, micro_batches in zip(shuffled_epoch(40, workers=workers, **sizes), alone, strict=True):
        assert len(step) == workers
        assert max(map(len, step)) - min(map(len, step)) <= 1
        first = [share_start(rank, 8, workers) for rank in range(workers)]
        assert all(np.array_equal(share[0], micro_batches[i]) for share, i in zip(step, first, strict=True))
        assert np.array_equal(np.concatenate([m for share in step for m in share]), np.concatenate(micro_batches))


def test_an_epoch_says_what_it_is() -> None:
    shuffled = shuffled_epoch(40, batch_size=16, micro_batches=8, seed=0, epoch=3)
    assert (shuffled.number, shuffled.sampling, shuffled.rate) == (3, "shuffle", 0.4)
    drawn = poisson_examples(40, batch_size=10, rng=np.random.default_rng(0), epoch=1)
    assert (drawn.number, drawn.sampling, drawn.rate) == (1, "poisson", 0.25)
    assert shuffled_epoch(4, batch_size=16, micro_batches=2, seed=0, epoch=0).rate == 1


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        steps = whole(shuffled_epoch(50, batch_size=10, micro_batches=2, seed=seed, epoch=epoch))
        return [int(i) for step in steps for micro_batch in step for i in micro_batch]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)
    of_another = shuffled_epoch(50, batch_size=10, micro_batches=2, seed=1, epoch=1, order=0)
    assert of_another.number == 1
    assert [int(i) for step in whole(of_another) for micro_batch in step for i in micro_batch] == order(1, 0)


def test_poisson_draws_each_example_independently_at_the_rate_and_into_a_uniform_micro_batch() -> None:
    examples, epochs = 200, 400
    rng = np.random.default_rng(0)
    counts, places, sizes = np.zeros(examples), np.zeros(4), []
    for epoch in range(epochs):
        for step in whole(poisson_epoch(examples, batch_size=20, micro_batches=4, rng=rng, epoch=epoch)):
            drawn = np.concatenate(step)
            assert len(set(drawn)) == len(drawn)
            counts[drawn] += 1
            places += [len(m) for m in step]
            sizes.append(len(drawn))
    n, rate = len(sizes), 0.1
    assert n == epochs * steps_per_epoch(examples, 20)
    assert np.abs(counts / n - rate).max() < 5 * np.sqrt(rate * (1 - rate) / n)
    assert np.var(sizes) == pytest.approx(examples * rate * (1 - rate), rel=0.1)
    assert places / places.sum() == pytest.approx([0.25] * 4, abs=0.01)


def test_poisson_gives_empty_micro_batches_where_few_examples_are_drawn() -> None:
    steps = whole(poisson_epoch(4, batch_size=2, micro_batches=8, rng=np.random.default_rng(0), epoch=0))
    assert len(steps) == 2
    assert any(len(micro_batch) == 0 for step in steps for micro_batch in step)


def _places(examples: int, micro_batches: int, seed: int) -> dict[int, int]:
    """Which micro-batch each example of the first step stands in; those that were not drawn are left out."""
    rng = np.random.default_rng(seed)
    step, *_ = whole(poisson_epoch(examples, batch_size=examples // 2, micro_batches=micro_batches, rng=rng, epoch=0))
    return {int(i): place for place, drawn in enumerate(step) for i in drawn}


def test_where_an_example_stands_does_not_depend_on_what_became_of_the_others() -> None:
    class ByExample(np.random.Generator):
        """Numbers that belong to an example, of which one may be forced."""

        drawn: float

        def random(self, *shape: Any) -> Any:
            numbers = super().random(*shape)
            numbers[3, 0] = self.drawn
            return numbers

    def first_step(drawn: float) -> list[np.ndarray]:
        rng = ByExample(np.random.PCG64(4))
        rng.drawn = drawn
        return whole(poisson_epoch(40, batch_size=20, micro_batches=4, rng=rng, epoch=0))[0]

    here, gone = first_step(0.0), first_step(1.0)
    assert any(3 in drawn for drawn in here)
    for with_it, without_it in zip(here, gone, strict=True):
        assert [i for i in with_it if i != 3] == list(without_it)


def test_an_example_that_is_added_last_moves_no_other_one() -> None:
    """Rates differ with the size of the data set, which is public; the numbers that they are compared with do not."""
    for seed in range(20):
        fewer, more = _places(40, 4, seed), _places(41, 4, seed)
        both = fewer.keys() & more.keys()
        assert all(fewer[i] == more[i] for i in both)


def test_who_is_drawn_does_not_depend_on_the_number_of_micro_batches() -> None:
    assert _places(50, 1, seed=0).keys() == _places(50, 8, seed=0).keys() == _places(50, 7, seed=0).keys()


@pytest.mark.slow
def test_places_are_independent_of_each_other_and_of_being_drawn() -> None:
    n = 4000
    here = np.array([[_places(2, 2, seed).get(i, -1) for i in range(2)] for seed in range(n)])
    # Three outcomes of each of two examples: not drawn (a half), or drawn into one of two micro-batches.
    expected = np.outer([0.5, 0.25, 0.25], [0.5, 0.25, 0.25])
    counted = np.histogram2d(here[:, 0], here[:, 1], bins=[-1.5, -0.5, 0.5, 1.5])[0] / n
    assert np.abs(counted - expected).max() < 5 * np.sqrt(0.25 / n)


def test_dpsgd_deals_every_drawn_example_to_one_worker_as_a_micro_batch_of_its_own() -> None:
    arguments = {"batch_size": 3, "workers": 4, "epoch": 0}
    single = list(poisson_examples(60, rng=np.random.default_rng(1), **arguments))
    drawn = whole(poisson_epoch(60, batch_size=3, micro_batches=1, rng=np.random.default_rng(1), epoch=0))
    assert len(single) == steps_per_epoch(60, 3)
    assert any(not mine for step in single for mine in step), "some worker had none"
    for step, (at_once,) in zip(single, drawn, strict=True):
        assert len(step) == 4
        assert all(len(micro_batch) == 1 for mine in step for micro_batch in mine)
        assert sorted(int(m[0]) for mine in step for m in mine) == list(at_once)
