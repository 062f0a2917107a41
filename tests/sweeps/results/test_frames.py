"""DataFrames say of a sweep what its study says, a row each, and no column stands for two things."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sweeps.results.confirmed import seed_folder
from sweeps.results.frames import epochs_frame, front_frame, trials_frame
from sweeps.results.front import pareto_front, ties
from sweeps.results.snapshot import Snapshot
from sweeps.store.records import ConfirmedRun
from sweeps.store.sweep import Sweep
from tests.support.synthetic import sweep_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 5, tracked=False)


def test_every_trial_has_its_settings_its_metrics_and_its_cost(made: Sweep) -> None:
    frame, trials = trials_frame(made), made.trials()
    assert frame.index.name == "trial"
    assert list(frame.index) == [trial.number for trial in trials]
    assert frame.columns.is_unique
    for trial in trials:
        row = frame.loc[trial.number]
        assert row["state"] == trial.state
        assert {name: row[f"edp.{name}"] for name in trial.params} == trial.params
        assert {name: row[name] for name in trial.metrics} == trial.metrics
        assert row["worker_seconds"] == trial.metrics["worker_seconds"]


def test_every_epoch_has_a_row_counted_from_1(made: Sweep) -> None:
    frame, epochs = epochs_frame(made), made.recipe.training.epochs
    assert list(frame.index) == [(trial.number, e) for trial in made.trials() for e in range(1, epochs + 1)]
    for trial in made.trials():
        assert list(frame.loc[trial.number]["valid_ser"]) == [metrics["valid_ser"] for metrics in trial.curve]


def test_the_front_has_its_order_and_its_ties(made: Sweep) -> None:
    frame, objectives = front_frame(made), made.recipe.search.objectives
    front = pareto_front(made.trials(), objectives)
    assert list(frame.index) == [point.name for point in front]
    assert list(frame["epoch"]) == [point.epoch for point in front]
    assert np.array_equal(frame["ser"], [point.metrics["ser"] for point in front])
    tied = ties(made.trials(), front, objectives)
    assert list(frame["tied_with"]) == [tuple(tied.get(point.name, ())) for point in front]
    assert any(frame["tied_with"]), "figures of this sweep overlap"


def test_the_front_has_the_recommendation_and_what_confirm_measured(tmp_path: Path) -> None:
    made = sweep_of(tmp_path, "made", 5, tracked=False)
    point = (Snapshot(made).recommended().point or Snapshot(made).recommended().instead) or pareto_front(
        made.trials(), ("ser",)
    )[0]
    for seed in range(1, 4):
        folder = seed_folder(made, point, seed)
        folder.mkdir(parents=True)
        metrics = point.metrics | {"ser": 0.1 * seed, "valid_ser": 0.01 * seed}
        (folder / "result.json").write_text(ConfirmedRun(seed=seed, metrics=metrics, run_id=None).model_dump_json())
    frame, advised = front_frame(made), Snapshot(made).recommended().point
    assert list(frame.index[frame["recommended"]]) == ([advised.name] if advised else [])
    row = frame.loc[point.name]
    assert row["confirmed_seeds"] == 3
    assert row["confirmed_ser"] == pytest.approx(0.2)
    assert row["confirmed_ser_lower"] < 0.2 < row["confirmed_ser_upper"]
    assert row["ser"] == point.metrics["ser"], "the sweep's own figure stays"
    assert frame["confirmed_seeds"].isna().sum() == len(frame) - 1
