"""What the accounting assumes of the samplers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.keyed import derived_key, digests, numbers, uniforms
from edp.sampling import Epoch, Indices, poisson_epoch, poisson_examples, share_start, shuffled_epoch, steps_per_epoch

KEY = bytes(range(32))


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
    drawn = poisson_examples(40, batch_size=10, key=KEY, epoch=1)
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


@pytest.mark.slow
def test_poisson_draws_each_example_independently_at_the_rate_and_into_a_uniform_micro_batch() -> None:
    examples, epochs = 200, 400
    counts, places, sizes = np.zeros(examples), np.zeros(4), []
    for epoch in range(epochs):
        for step in whole(poisson_epoch(examples, batch_size=20, micro_batches=4, key=KEY, epoch=epoch)):
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
    steps = whole(poisson_epoch(4, batch_size=2, micro_batches=8, key=KEY, epoch=0))
    assert len(steps) == 2
    assert any(len(micro_batch) == 0 for step in steps for micro_batch in step)


def _places(examples: int, micro_batches: int, seed: int) -> dict[int, int]:
    """Which micro-batch each example of the first step stands in; those that were not drawn are left out."""
    key, size = derived_key(KEY, seed), examples // 2
    step, *_ = whole(poisson_epoch(examples, batch_size=size, micro_batches=micro_batches, key=key, epoch=0))
    return {int(i): place for place, drawn in enumerate(step) for i in drawn}


@pytest.mark.parametrize("gone", [0, 17, 39])
def test_an_example_that_goes_moves_no_other_one_if_ids_are_what_examples_hold(gone: int) -> None:
    """Rates differ with the size of the data set, which is public: a blank at its end keeps it."""
    contents = [f"utterance {number % 30}".encode() for number in range(40)]  # ten of them twice
    fewer = [*(one for number, one in enumerate(contents) if number != gone), b"blank"]

    def steps(held: list[bytes]) -> list[list[list[bytes]]]:
        drawn = whole(poisson_epoch(40, batch_size=20, micro_batches=4, key=KEY, epoch=2, ids=digests(held)))
        return [[sorted(held[i] for i in micro_batch) for micro_batch in step] for step in drawn]

    here, there = steps(contents), steps(fewer)
    moved = [
        (len(Counter(one) - Counter(other)), set(other) - set(one))
        for step, its in zip(here, there, strict=True)
        for one, other in zip(step, its, strict=True)
    ]
    assert sum(left for left, _ in moved) <= len(here), "at most the one that went, in each step"
    assert all(new <= {b"blank"} for _, new in moved)
    equal = {contents[gone], b"blank"}
    assert [[[i for i in m if i not in equal] for m in step] for step in here] == [
        [[i for i in m if i not in equal] for m in step] for step in there
    ]


@settings(max_examples=30, deadline=None)
@given(examples=st.integers(1, 60), batch_size=st.integers(1, 80), epoch=st.integers(0, 3))
@pytest.mark.slow
def test_gaps_between_draws_are_those_of_a_coin_a_step(examples: int, batch_size: int, epoch: int) -> None:
    """Each step's coin, as the gaps imply it: drawn where the number of misses since the last draw has run out."""
    rate, steps = min(1.0, batch_size / examples), steps_per_epoch(examples, batch_size)
    found = [
        sorted(map(int, np.concatenate(step)))
        for step in whole(poisson_epoch(examples, batch_size=batch_size, micro_batches=3, key=KEY, epoch=epoch))
    ]
    literal: list[list[int]] = [[] for _ in range(steps)]
    for example in range(examples):
        step, at = -1, 0
        while step < steps:
            block = uniforms(derived_key(KEY, "poisson", epoch, at // 4), numbers(examples))[example]
            misses = 0
            while (1 - rate) ** (misses + 1) >= block[at % 4] and misses < steps:
                misses += 1
            step, at = step + 1 + misses, at + 1
            if step < steps:
                literal[step].append(example)
    assert found == literal


def test_an_example_that_is_added_last_moves_no_other_one() -> None:
    """Rates differ with the size of the data set, which is public; the numbers that they are compared with do not."""
    for seed in range(20):
        fewer, more = _places(40, 4, seed), _places(41, 4, seed)
        both = fewer.keys() & more.keys()
        assert all(fewer[i] == more[i] for i in both)


def test_who_is_drawn_does_not_depend_on_the_number_of_micro_batches() -> None:
    assert _places(50, 1, seed=0).keys() == _places(50, 8, seed=0).keys() == _places(50, 7, seed=0).keys()


@pytest.mark.stress
def test_places_are_independent_of_each_other_and_of_being_drawn() -> None:
    n = 4000
    here = np.array([[_places(2, 2, seed).get(i, -1) for i in range(2)] for seed in range(n)])
    # Three outcomes of each of two examples: not drawn (a half), or drawn into one of two micro-batches.
    expected = np.outer([0.5, 0.25, 0.25], [0.5, 0.25, 0.25])
    counted = np.histogram2d(here[:, 0], here[:, 1], bins=[-1.5, -0.5, 0.5, 1.5])[0] / n
    assert np.abs(counted - expected).max() < 5 * np.sqrt(0.25 / n)


def test_dpsgd_deals_every_drawn_example_to_one_worker_as_a_micro_batch_of_its_own() -> None:
    arguments = {"batch_size": 3, "workers": 4, "epoch": 0}
    single = list(poisson_examples(60, key=KEY, **arguments))
    drawn = whole(poisson_epoch(60, batch_size=3, micro_batches=1, key=KEY, epoch=0))
    assert len(single) == steps_per_epoch(60, 3)
    assert any(not mine for step in single for mine in step), "some worker had none"
    for step, (at_once,) in zip(single, drawn, strict=True):
        assert len(step) == 4
        assert all(len(micro_batch) == 1 for mine in step for micro_batch in mine)
        assert sorted(int(m[0]) for mine in step for m in mine) == list(at_once)
