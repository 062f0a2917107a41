"""MLflow remembers what was trained after its folder is gone, and which models were registered."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from sweeps.results.account import CorpusAccount
from sweeps.store.storage import default_tracking_uri
from sweeps.tracking.remembered import GONE, tracked_accounts
from sweeps.tracking.run_tags import flat
from sweeps.tracking.tracker import Tracker
from tests.support.spending import spec_of, training
from tests.support.synthetic import sweep_of

EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")
DELTA = 5e-4


def account(storage: Path) -> CorpusAccount:
    (found,) = tracked_accounts(storage, default_tracking_uri(storage))
    return found


def register(storage: Path, run_id: str) -> None:
    client = MlflowClient(tracking_uri=default_tracking_uri(storage), registry_uri=default_tracking_uri(storage))
    client.create_registered_model("voice")
    client.create_model_version("voice", "file:///nowhere", run_id)


@pytest.mark.slow
def test_a_deleted_sweep_is_listed_and_makes_the_total_a_lower_bound(tmp_path: Path) -> None:
    gone = sweep_of(tmp_path, "gone", 3, *EIGHT)
    sweep_of(tmp_path, "here", 1, *EIGHT)
    assert account(tmp_path).uncounted == []
    everything = account(tmp_path).everything(DELTA)
    shutil.rmtree(gone.folder)
    found = account(tmp_path)
    assert found.uncounted == [f"gone: {GONE}"]
    assert [(row.activity.name, row.activity.trainings) for row in found.rows] == [("gone", 3), ("here", 1)]
    assert found.everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert found.everything(DELTA) < everything
    sweep_of(tmp_path, "gone", 1, *EIGHT)
    assert account(tmp_path).uncounted == [f"gone: {GONE}"], "another sweep of this name"


@pytest.mark.slow
def test_a_registered_model_is_released_whoever_registered_it(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "s", 2, *EIGHT)
    spec = spec_of(*EIGHT)
    tracker = Tracker(default_tracking_uri(tmp_path), "train", tmp_path / "mlflow-artifacts")
    run_id = tracker.start(
        "train-one", params=flat(spec.model_dump(mode="json")), tags={"role": "train", "sweep": "train-one"}
    )
    assert run_id is not None
    folder = training(tmp_path, "one", *EIGHT)
    assert account(tmp_path).released(DELTA) == 0
    register(tmp_path, run_id)
    assert account(tmp_path).released(DELTA) == pytest.approx(8, rel=1e-4)
    trial = sweep.trials()[1].run_id
    assert trial is not None
    MlflowClient(tracking_uri=default_tracking_uri(tmp_path)).create_model_version("voice", "file:///nowhere", trial)
    assert account(tmp_path).released(DELTA) == account(tmp_path).everything(DELTA)
    shutil.rmtree(folder)
    assert account(tmp_path).uncounted == [f"train-one: {GONE}"]


@pytest.mark.slow
def test_a_store_that_is_gone_or_silent_is_said(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "s", 1, *EIGHT)
    sweep.update(tracking_uri=f"sqlite:///{tmp_path / 'moved.db'}")
    (line,) = account(tmp_path).uncounted
    assert line.startswith("what only this store knows: tracking-uri = ")
    assert not (tmp_path / "moved.db").exists()
    (found,) = tracked_accounts(tmp_path, "http://127.0.0.1:9")
    assert any("127.0.0.1:9" in line for line in found.uncounted)
