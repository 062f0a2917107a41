"""Random numbers of an example: ChaCha8, a function of key and id alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from edp.keyed import derived_key, digests, numbers, uniforms, words
from edp.noise.compiled import chacha8_block
from edp.noise.gaussian import shared_key
from tests.support.workers import run_workers

KEY = bytes(range(32))


def test_the_numbers_of_an_id_are_its_block_of_a_literal_chacha8() -> None:
    ids = np.array([[16, 0, 0, 0], [5, 7, 0, 0], [2**32 - 1, 2**32 - 1, 0, 0]], np.uint32)
    blocks = [chacha8_block(KEY, int(low) + (int(high) << 32)) for low, high, *_ in ids]
    assert [row.tobytes() for row in words(KEY, ids)] == blocks


@pytest.mark.parametrize("ids", [numbers(40_000), digests(str(n).encode() for n in range(40_000))], ids=["n", "digest"])
def test_they_are_uniform_and_independent(ids: np.ndarray) -> None:
    drawn = uniforms(KEY, ids)
    assert 0 < drawn.min() <= drawn.max() <= 1
    assert kstest(drawn.ravel(), "uniform").pvalue > 1e-4
    correlations = np.corrcoef(np.concatenate([drawn, np.roll(drawn, 1, axis=0)], axis=1).T) - np.eye(16)
    assert np.abs(correlations).max() < 5 / np.sqrt(len(ids))


def test_another_key_and_another_purpose_give_other_numbers() -> None:
    keys = {KEY, derived_key(KEY, "poisson", 0, 0), derived_key(KEY, "poisson", 0, 1), derived_key(KEY, "users", 0)}
    assert len(keys) == 4
    assert len({uniforms(key, numbers(1)).tobytes() for key in keys}) == 4


def test_ids_are_all_different_and_those_of_equal_examples_are_the_same_set_without_one_of_them() -> None:
    held = [b"yes", b"no", b"yes", b"yes"]
    ids = digests(held)
    assert len(np.unique(ids, axis=0)) == 4
    for gone in (0, 2, 3):
        fewer = digests(one for number, one in enumerate(held) if number != gone)
        assert {row.tobytes() for row in fewer} < {row.tobytes() for row in ids}


def _keys(rank: int, world: int) -> tuple[bytes, bytes]:
    return shared_key(), shared_key()


@pytest.mark.slow
def test_all_workers_share_a_key_that_is_never_the_same() -> None:
    one, other = run_workers(_keys, 2)
    assert one == other
    assert len(one[0]) == 32
    assert one[0] != one[1]
