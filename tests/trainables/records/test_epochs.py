"""Kept epochs are those that cover most of a trial's trade-off, the last among them, whatever happened on the way."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.ledger import Ledger
from trainables.records.epochs import EpochLog, worth_keeping
from trainables.records.pareto import Metrics, dominates, hypervolume, non_dominated

point = st.tuples(*[st.integers(0, 9).map(float)] * 3)


@settings(deadline=None)
@given(st.lists(point, max_size=8))
@pytest.mark.slow
def test_hypervolume_counts_the_unit_cubes_that_some_point_dominates(points: list[tuple[float, ...]]) -> None:
    cubes = itertools.product(range(9), repeat=3)
    covered = sum(any(all(a <= c for a, c in zip(p, cube, strict=True)) for p in points) for cube in cubes)
    assert hypervolume(points, (9, 9, 9)) == covered


@settings(deadline=None)
@given(st.lists(point, min_size=1, max_size=12), st.integers(1, 4))
@pytest.mark.slow
def test_what_is_kept_is_non_dominated_and_holds_the_last(points: list[tuple[float, ...]], most: int) -> None:
    kept = worth_keeping(points, most)
    last = len(points) - 1
    assert last in kept
    assert len(kept) <= most
    assert all(i == last or not any(dominates(other, points[i]) for other in points) for i in kept)
    assert most > 1 or kept == [last]


def test_an_epoch_that_adds_least_is_dropped_first() -> None:
    points = [(1.0, 0.5, 0.0), (0.5, 0.5, 1.0), (0.49, 0.5, 1.1), (0.2, 0.5, 2.0)]
    assert non_dominated(points) == [0, 1, 2, 3]
    assert worth_keeping(points, 4) == [0, 1, 2, 3]
    assert worth_keeping(points, 3) in ([0, 1, 3], [0, 2, 3])
    assert worth_keeping([(1.0, 0.5, np.inf), (0.4, 0.6, np.inf), (0.5, 0.7, np.inf)], 3) == [0, 1, 2]


def metrics(ser: float, auc: float, epsilon: float) -> Metrics:
    return {"valid_ser": ser, "valid_mia_auc": auc, "epsilon": epsilon}


CURVE = [metrics(0.9, 0.5, 10), metrics(0.95, 0.55, 20), metrics(0.5, 0.52, 40), metrics(0.4, 0.6, 80)]


def add(log: EpochLog, one: Metrics) -> None:
    log.add(len(log.curve) + 1, one, lambda: {"epoch": len(log.curve)}, Ledger())


def test_a_dominated_epoch_leaves_no_model_and_the_last_ones_place_is_elsewhere(tmp_path: Path) -> None:
    log = EpochLog(tmp_path, 3, 0)
    for one in CURVE:
        add(log, one)
        assert len(log.kept()) <= 3
        assert len(log.curve) in log.kept()
    assert log.kept() == [1, 3, 4]
    assert log.finish() == [1, 3]


def test_at_one_epsilon_an_early_epoch_is_kept_for_what_it_is_ahead_in_and_not_for_having_cost_less(
    tmp_path: Path,
) -> None:
    for objectives, kept in (
        (("ser", "mia_auc", "log10_epsilon"), [1, 3, 4]),
        (("ser", "mia_auc"), [1, 3, 4]),
        (("ser",), [4]),
    ):
        log = EpochLog(tmp_path / str(len(objectives)), 3, 0, objectives)
        for one in CURVE:
            add(log, one)
        assert log.kept() == kept
    cheap = EpochLog(tmp_path / "cheap", 3, 0, ("ser", "mia_auc"))
    for one in (metrics(0.9, 0.6, 1), metrics(0.5, 0.55, 4), metrics(0.4, 0.56, 8)):
        add(cheap, one)
    assert cheap.kept() == [2, 3], "the first was ahead in ε alone"


def test_what_a_crash_left_of_a_later_epoch_is_removed(tmp_path: Path) -> None:
    log = EpochLog(tmp_path, 3, 0)
    for one in CURVE[:3]:
        add(log, one)
    again = EpochLog(tmp_path, 3, 2)
    assert again.kept() == [1]
    assert again.curve == CURVE[:2]


@pytest.mark.parametrize("done", [1, 4])
def test_one_epoch_to_keep_writes_no_models_but_the_whole_curve(tmp_path: Path, done: int) -> None:
    log = EpochLog(tmp_path, 1, 0)
    for one in CURVE[:done]:
        add(log, one)
    assert log.finish() == []
    assert not (tmp_path / "epochs").exists()
    assert EpochLog(tmp_path, 1, done).curve == CURVE[:done]
