"""A share of a step is cut into chunks that fit, and no cut changes what is trained."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny import corpus, run, weights
from trainables.training.batches import chunks, examples_that_fit

__all__ = ["corpus"]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_chunks_hold_every_example_once_with_its_micro_batch_s_share(sizes: list[int], most: int) -> None:
    ends = np.cumsum([0, *sizes])
    micro_batches = [np.arange(a, b) for a, b in pairwise(ends)]
    found = chunks(micro_batches, most, np.arange(ends[-1]) % 7)
    assert found
    assert all(len(chunk.indices) <= max(1, most) for chunk in found)
    assert sum(chunk.micro_batches for chunk in found if chunk.ends) == len(sizes)
    weight: dict[int, float] = {}
    together: list[set[int]] = []
    open_part: set[int] = set()
    for chunk in found:
        for index, own in zip(chunk.indices.tolist(), chunk.weight_b.tolist(), strict=True):
            if own:
                assert index not in weight
                weight[index] = own
        if chunk.micro_batches == 1:
            open_part |= {int(i) for i, own in zip(chunk.indices, chunk.weight_b, strict=True) if own}
            if chunk.ends:
                together.append(open_part)
                open_part = set()
            continue
        assert not open_part, "a micro-batch in parts was not ended before the next one"
        for m in range(chunk.micro_batches):
            mine = (chunk.micro_batch_b == m) & (chunk.weight_b > 0)
            together.append(set(chunk.indices[mine].tolist()))
    assert sorted(map(sorted, filter(None, together))) == sorted(sorted(m.tolist()) for m in micro_batches if len(m))
    for examples in micro_batches:
        assert [weight[i] for i in examples] == pytest.approx([1 / max(1, len(examples))] * len(examples))


EVERY_WAY: dict[str, dict[str, dict[str, Any]]] = {
    "8 micro-batches": {"training": {"micro_batches": 8}},
    "one of all": {"training": {"micro_batches": 1}},
    "one example each": {"training": {"method": "dpsgd"}},
    "one example each, drawn": {"training": {"method": "dpsgd"}, "edp": {"sampling": "poisson"}},
    "8 drawn": {"training": {"micro_batches": 8}, "edp": {"sampling": "poisson"}},
    "without privacy": {"training": {"method": "sgd"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", EVERY_WAY.values(), ids=EVERY_WAY.keys())
def test_no_memory_batch_changes_the_result(way: dict[str, dict[str, Any]], corpus: Path, tmp_path: Path) -> None:
    found = []
    for memory_batch in (1, 3, 7, None):
        output = tmp_path / str(memory_batch)
        changes = way | {"training": way["training"] | {"epochs": 1, "memory_batch": memory_batch}}
        run(corpus, output, 1, **changes)
        found.append(weights(output))
    for other in found[:-1]:
        torch.testing.assert_close(other, found[-1], rtol=0, atol=2e-5)


class _Squares(torch.nn.Module):
    """It keeps 1000 numbers an example for its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).exp().sum(1)


def test_a_chunk_holds_what_a_gib_does() -> None:
    small, large = (examples_that_fit(_Squares(), torch.ones(n, 1000), torch.device("cpu")) for n in (4, 64))
    assert small == pytest.approx(large, rel=0.2)
    # The input and its exponential are kept: 8,000 bytes; as much again for the backward pass.
    assert (1 << 30) / 32_000 < small < (1 << 30) / 8_000
