"""What the accounting assumes of the samplers."""

from __future__ import annotations

import numpy as np
import pytest

from edp.sampling import poisson_epoch, shuffled_epoch, steps_per_epoch


@pytest.mark.parametrize("examples", [1, 7, 32, 33, 100])
def test_a_shuffled_epoch_holds_every_example_once_in_full_micro_batches(examples: int) -> None:
    steps = list(shuffled_epoch(examples, batch_size=32, micro_batches=8, seed=3, epoch=1))
    assert len(steps) == steps_per_epoch(examples, 32)
    assert all(len(step) == 8 for step in steps)
    assert all(len(micro_batch) == 4 for step in steps[:-1] for micro_batch in step)
    seen = np.concatenate([micro_batch for step in steps for micro_batch in step])
    assert sorted(seen) == list(range(examples))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        steps = shuffled_epoch(50, batch_size=10, micro_batches=2, seed=seed, epoch=epoch)
        return [int(i) for step in steps for micro_batch in step for i in micro_batch]

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_poisson_draws_each_example_independently_at_the_rate_and_into_a_uniform_micro_batch() -> None:
    examples, epochs = 200, 400
    rng = np.random.default_rng(0)
    counts, places, sizes = np.zeros(examples), np.zeros(4), []
    for _ in range(epochs):
        for step in poisson_epoch(examples, batch_size=20, micro_batches=4, rng=rng):
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
    steps = list(poisson_epoch(4, batch_size=2, micro_batches=8, rng=np.random.default_rng(0)))
    assert len(steps) == 2
    assert any(len(micro_batch) == 0 for step in steps for micro_batch in step)
