"""What a run sends to MLflow, and in how many requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.tracking import job_run
from sweeps.tracking.job_run import JobRun, open_job
from sweeps.tracking.tracker import Figures, Tracker


@pytest.fixture
def tracker(tmp_path: Path) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path}/mlflow.db", "e", tmp_path / "artifacts")


@pytest.fixture
def requests(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the store's calls."""
    made: list[str] = []
    store: Any = tracker.client._tracking_client.store
    for name in ("create_run", "log_batch", "get_run", "update_run_info"):
        monkeypatch.setattr(store, name, _counted(name, getattr(store, name), made))
    return made


def _counted(name: str, call: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    def counted(*args: Any, **about: Any) -> Any:
        made.append(name)
        return call(*args, **about)

    return counted


def opened(tracker: Tracker, *, at_once: bool) -> JobRun:
    return open_job(tracker, "one", params={"C": 0.5}, tags={"role": "trial"}, at_once=at_once)


def stored(tracker: Tracker, run: JobRun) -> Any:
    assert run.run_id is not None
    return tracker.client.get_run(run.run_id).data


@pytest.mark.slow
def test_a_short_trial_is_three_requests(tracker: Tracker, requests: list[str], tmp_path: Path) -> None:
    run = opened(tracker, at_once=False)
    for epoch in (1, 2, 3):
        run.epoch(epoch, {"valid_ser": 1 / epoch, "epsilon": 1.0 * epoch})
    (tmp_path / "ledger.json").write_text("{}")
    run.files([tmp_path / "ledger.json"])
    run.end({"state": "complete"})
    assert requests == ["create_run", "log_batch", "update_run_info"]
    assert run.whole
    data = stored(tracker, run)
    assert data.params == {"C": "0.5"}
    assert data.metrics["epsilon"] == 3.0
    assert data.tags["state"] == "complete"
    assert [one.path for one in tracker.client.list_artifacts(str(run.run_id))] == ["ledger.json"]


@pytest.mark.slow
def test_what_waits_is_sent_in_seconds(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(tracker, at_once=False)
    run.send_due()
    assert stored(tracker, run).params == {}, "the first figures bring them"
    monkeypatch.setattr(job_run, "_TOGETHER_S", 0.0)
    run.send_due()
    assert stored(tracker, run).params == {"C": "0.5"}
    assert stored(tracker, opened(tracker, at_once=True)).params == {"C": "0.5"}


@pytest.mark.slow
def test_of_a_metric_at_one_step_the_last_value_counts(tracker: Tracker) -> None:
    run = tracker.start("one", params={}, tags={})
    assert run is not None
    tracker.log(run, Figures({"epsilon": 1.0, "ser": 0.5}, 1), Figures({"epsilon": 2.0}, 1), Figures({"ser": 0.4}, 2))
    history = {key: tracker.client.get_metric_history(run, key) for key in ("epsilon", "ser")}
    assert [(one.step, one.value) for one in history["epsilon"]] == [(1, 2.0)]
    assert [(one.step, one.value) for one in history["ser"]] == [(1, 0.5), (2, 0.4)]
