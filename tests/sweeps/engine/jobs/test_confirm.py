"""Means over seeds have the interval that Student's t gives them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_1samp

from edp.spec import UserError
from sweeps.engine.jobs.confirm import confirm
from sweeps.engine.progress import Progress
from sweeps.results.confirmed import estimate, next_training
from sweeps.text.signals import SweepStopped
from tests.support.synthetic import sweep_of

WATCH = Progress(Console(quiet=True))


def test_the_interval_is_that_of_the_t_test() -> None:
    values = [0.21, 0.25, 0.24]
    found = estimate(values)
    expected = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.mean, found.lower, found.upper) == pytest.approx((np.mean(values), expected.low, expected.high))


def test_three_seeds_hold_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    found = [estimate(rng.normal(0.3, 0.02, 3).tolist()) for _ in range(1_000)]
    assert 0.93 <= np.mean([one.lower <= 0.3 <= one.upper for one in found]) <= 0.97


@pytest.mark.parametrize("seeds", [3, 10, 20])
def test_one_more_training_lies_within_its_interval_95_times_in_100(seeds: int) -> None:
    rng = np.random.default_rng(2)
    held = []
    for _ in range(2_000):
        *values, one = rng.normal(0.3, 0.02, seeds + 1).tolist()
        lower, upper = next_training(values)
        held.append(lower <= one <= upper)
    assert 0.93 <= np.mean(held) <= 0.97
    assert next_training([0.0, 0.0, 0.05])[0] == 0.0


def test_what_does_not_vary_has_no_width_also_where_it_is_infinite() -> None:
    assert estimate([0.7] * 3).mean == 0.7, "the mean of three is not"
    assert vars(estimate([8.0, 8.0])) == {"mean": 8.0, "lower": 8.0, "upper": 8.0}
    assert estimate([math.inf, math.inf]).upper == math.inf


def test_a_sweep_that_runs_or_has_no_front_is_not_confirmed(tmp_path: Path) -> None:
    empty = sweep_of(tmp_path, "empty", 0, tracked=False)
    with pytest.raises(UserError, match="no complete trial"):
        confirm(empty, 3, WATCH)
    empty.update(state="running")
    with pytest.raises(UserError, match="has not ended"):
        confirm(empty, 3, WATCH)


@pytest.mark.slow
def test_who_stops_it_is_told_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ctrl_c(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweeps.engine.opening.ray_session", ctrl_c)
    made = sweep_of(tmp_path, "done", 2)
    with pytest.raises(SweepStopped, match=r"stopped by Ctrl-C; go on with: edp-sweep confirm done 0 --seeds 4 --st"):
        confirm(made, 4, WATCH, named="0")
