"""The trials as they ran: a bar each, curves over each other, and what new seeds attain together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from dashboards.pareto.data import Snapshot, snapshot
from dashboards.pareto.runs import attained, attainment_chart, curves_chart, seeds_of, timeline_chart
from sweeps.results.confirmed import seed_folder
from sweeps.store.records import ConfirmedRun
from sweeps.store.sweep import Sweep
from tests.support.synthetic import sweep_of

NOON = datetime(2026, 1, 1, 12)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 6, tracked=False)


@pytest.fixture
def found(made: Sweep) -> Snapshot:
    return snapshot(made)


def ran(begin: float, end: float | None, state: str = "complete") -> FrozenTrial:
    """A trial that began and ended so many seconds after noon."""
    trial = create_trial(state=TrialState.FAIL, user_attrs={"state": state, "params": {"C": 0.5}})
    trial.datetime_start = NOON + timedelta(seconds=begin)
    trial.datetime_complete = None if end is None else NOON + timedelta(seconds=end)
    return trial


def test_a_bar_for_each_trial_and_what_ran_at_once_is_below_each_other(found: Snapshot) -> None:
    trials = [ran(0, 10), ran(1, 4, "stopped"), ran(5, None, "running"), ran(11, 12), ran(0, 9, "refused")]
    drawn = timeline_chart(trials, found, NOON + timedelta(seconds=20), "light")["data"]
    bars = {(trace["name"], y, x) for trace in drawn for y, x in zip(trace["y"], trace["x"], strict=True)}
    assert bars == {("complete", 1, 10e3), ("complete", 1, 1e3), ("stopped", 2, 3e3), ("running", 2, 15e3)}
    assert drawn[0]["base"][0] == "2026-01-01 12:00:00"
    assert not timeline_chart([ran(0, 1, "refused")], found, NOON, "dark")["data"]


def test_the_curves_of_all_trials_lie_over_each_other_with_the_front_above(found: Snapshot) -> None:
    drawn = curves_chart(found, "valid_ser", "light")["data"]
    assert {trace["name"] for trace in drawn} == {f"trial {trial}" for trial in found.curves}
    front = {f"trial {candidate.point.trial}" for candidate in found.front}
    assert {trace["name"] for trace in drawn[-len(front) :]} == front
    assert not curves_chart(replace(found, curves={}), "valid_ser", "light")["data"]


def test_a_surface_is_what_so_many_seeds_attain() -> None:
    seeds = [[(1.0, 5.0), (2.0, 3.0)], [(1.0, 6.0), (3.0, 1.0)], [(2.0, 4.0)]]
    found = attained(seeds)
    for x in (1.0, 2.0, 3.0):  # literally
        lowest = sorted(min((b for a, b in seed if a <= x), default=float("inf")) for seed in seeds)
        for name, rank in (("one seed", 0), ("half of the seeds", 1), ("all seeds", 2)):
            assert dict(found[name]).get(x, float("inf")) == lowest[rank]


def test_new_seeds_are_drawn_where_confirm_has_trained_enough(made: Sweep, found: Snapshot) -> None:
    assert seeds_of(made, found) == ("", "", [])
    assert not attainment_chart(found, *seeds_of(made, found), "light")["data"]
    points = [candidate.point for candidate in found.front[:2]]
    for point in points:
        for seed in (1, 2, 3):
            folder = seed_folder(made, point, seed)
            folder.mkdir(parents=True)
            metrics: dict[str, Any] = point.metrics | {"valid_ser": 0.1 * seed, "valid_mia_auc": 0.5}
            (folder / "result.json").write_text(ConfirmedRun(seed=seed, run_id=None, metrics=metrics).model_dump_json())
    first, second, seeds = seeds_of(made, found)
    assert (first, second) == ("ser", "mia_auc")
    assert seeds == [[(pytest.approx(0.1 * seed), 0.5)] * 2 for seed in (1, 2, 3)]
    drawn = attainment_chart(found, first, second, seeds, "light")["data"]
    assert [trace["name"] for trace in drawn] == ["one seed", "half of the seeds", "all seeds"]
    assert [trace["y"][0] for trace in drawn] == pytest.approx([0.1, 0.2, 0.3])
