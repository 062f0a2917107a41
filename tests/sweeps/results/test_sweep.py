"""The library's sweep: front, best point, study, and DataFrames in which no column stands for two things."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState

from edp.spec import UserError
from sweeps.results.confirmed import seed_folder
from sweeps.results.front import pareto_front, ties
from sweeps.results.snapshot import Snapshot
from sweeps.results.sweep import Sweep, load_sweep
from sweeps.store.lock import driver_lock
from sweeps.store.records import ConfirmedRun
from tests.support.synthetic import sweep_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return loaded(tmp_path_factory.mktemp("runs"))


def loaded(storage: Path) -> Sweep:
    return load_sweep(sweep_of(storage, "made", 5, tracked=False).name, storage)


def test_every_trial_has_its_settings_its_metrics_and_its_cost(made: Sweep) -> None:
    frame, trials = made.get_dataframe(), made.trials()
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
    frame, epochs = made.get_dataframe("epochs"), made.recipe.training.epochs
    assert list(frame.index) == [(trial.number, e) for trial in made.trials() for e in range(1, epochs + 1)]
    for trial in made.trials():
        assert list(frame.loc[trial.number]["valid_ser"]) == [metrics["valid_ser"] for metrics in trial.curve]


def test_the_front_has_its_order_and_its_ties(made: Sweep) -> None:
    frame, objectives = made.get_dataframe("front"), made.recipe.search.objectives
    front = pareto_front(made.trials(), objectives)
    assert list(frame.index) == [point.name for point in front]
    assert list(frame["epoch"]) == [point.epoch for point in front]
    assert np.array_equal(frame["ser"], [point.metrics["ser"] for point in front])
    tied = ties(made.trials(), front, objectives)
    assert list(frame["tied_with"]) == [tuple(tied.get(point.name, ())) for point in front]
    assert any(frame["tied_with"]), "figures of this sweep overlap"


@pytest.mark.slow
def test_the_front_has_the_recommendation_and_what_confirm_measured(tmp_path: Path) -> None:
    made = loaded(tmp_path)
    point = (Snapshot(made).recommended().point or Snapshot(made).recommended().instead) or pareto_front(
        made.trials(), ("ser",)
    )[0]
    for seed in range(1, 4):
        folder = seed_folder(made, point, seed)
        folder.mkdir(parents=True)
        metrics = point.metrics | {"ser": 0.1 * seed, "valid_ser": 0.01 * seed}
        (folder / "result.json").write_text(ConfirmedRun(seed=seed, metrics=metrics, run_id=None).model_dump_json())
    frame, advised = made.get_dataframe("front"), Snapshot(made).recommended().point
    assert list(frame.index[frame["recommended"]]) == ([advised.name] if advised else [])
    row = frame.loc[point.name]
    assert row["confirmed_seeds"] == 3
    assert row["confirmed_ser"] == pytest.approx(0.2)
    assert row["confirmed_ser_lower"] < 0.2 < row["confirmed_ser_upper"]
    assert row["ser"] == point.metrics["ser"], "the sweep's own figure stays"
    assert frame["confirmed_seeds"].isna().sum() == len(frame) - 1


@pytest.mark.slow
def test_the_front_and_the_study_are_read_while_another_process_runs_the_sweep(tmp_path: Path) -> None:
    made = loaded(tmp_path)
    made.update(state="running")
    with driver_lock(made.folder, made.name):
        assert made.state == "running"
        assert [point.name for point in made.front()] == list(made.get_dataframe("front").index)
        assert all((Path(point.checkpoint.path) / "ledger.json").is_file() for point in made.front())
        trials = made.study.trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 5
    assert [trial.user_attrs["metrics"] for trial in trials] == [trial.metrics for trial in made.trials()]
    assert load_sweep(storage=tmp_path).name == "made", "the newest one"


def test_the_best_point_is_the_recommended_one_within_the_limits(made: Sweep) -> None:
    found = Snapshot(made)
    assert made.best().name == found.choose()[0].name
    most = sorted(point.metrics["epsilon"] for point in found.pareto)[1]
    assert made.best(max_epsilon=most).name == found.choose({"epsilon": most})[0].name
    assert made.best(max_epsilon=most).metrics["epsilon"] <= most
    assert (made.release, made.epsilon) == (None, found.epsilon)


def test_bad_input_gets_one_line(made: Sweep, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^max_epsilon = -1: allowed: a number of at least 0$"):
        made.best(max_epsilon=-1)
    with pytest.raises(UserError, match=r"^max_ser = '8': allowed: a number"):
        made.best(max_ser="8")  # type: ignore[arg-type]  # as an untyped notebook may
    with pytest.raises(UserError, match="nothing on the front fits epsilon <= 0"):
        made.best(max_epsilon=0)
    with pytest.raises(UserError, match=r"^rows = 'points': allowed: trials, epochs, front$"):
        made.get_dataframe("points")  # type: ignore[arg-type]  # as an untyped notebook may
    with pytest.raises(UserError, match=r"no sweep of this name in .*; allowed: made"):
        load_sweep("other", made.storage)
    with pytest.raises(UserError, match="holds no sweep"):
        load_sweep(storage=tmp_path)
