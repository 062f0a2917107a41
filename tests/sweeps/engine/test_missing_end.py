"""Whatever dies while a sweep's end is written: the next command writes it, and nothing is RUNNING for ever."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from sweeps.engine.finish import finish
from sweeps.engine.progress import Progress
from sweeps.store.lock import driver_lock
from sweeps.store.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from tests.conftest import Command
from tests.support.synthetic import sweep_of


class _Died(BaseException):
    """Ends a driver as a signal would: nothing after it is written."""


@pytest.fixture
def died(tmp_path: Path) -> Callable[[], Sweep]:
    """Make a sweep of three ended trials whose driver has died before it wrote the end; make it anew in each call."""
    storage, kept = tmp_path / "runs", tmp_path / "kept"
    storage.mkdir()
    with driver_lock(storage / "one", "one"):
        sweep = sweep_of(storage, "one", 3, state=None)
    for trial in sweep.trials():  # it died before MLflow had the trials' ends, too
        _client(storage).update_run(trial.run_id, status="RUNNING")
    shutil.copytree(storage, kept)

    def again() -> Sweep:
        _client(storage)._tracking_client.store.engine.dispose()  # it has the file open
        shutil.rmtree(storage)
        shutil.copytree(kept, storage)
        return Sweep.existing(storage, "one")

    return again


def _client(storage: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{storage / 'mlflow.db'}")


def _runs(storage: Path) -> dict[str, tuple[str, dict[str, str], dict[str, float]]]:
    """Each run's status, tags that people see, and metrics, by its name."""
    client = _client(storage)
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments)
    shown = ("state", "pareto", "privacy", "reason", "mlflow.note.content")
    found = {
        run.info.run_name: (
            run.info.status,
            {key: value for key, value in run.data.tags.items() if key in shown},
            run.data.metrics,
        )
        for run in runs
    }
    assert len(found) == len(runs), "each once"
    return found


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Let the driver die before its call number N to MLflow, or not at all."""
    real = Tracker._sent

    def die_at(number: int | None) -> None:
        calls = iter(range(10_000))

        def sent(tracker: Tracker, send: Callable[[], Any]) -> Any:
            if next(calls) == number:
                raise _Died
            return real(tracker, send)

        monkeypatch.setattr(Tracker, "_sent", sent)

    return die_at


def _end(sweep: Sweep) -> None:
    with driver_lock(sweep.folder, sweep.name):
        tracker = Tracker(sweep.record.tracking_uri, sweep.record.recipe, sweep.folder.parent / "mlflow-artifacts")
        finish(sweep, sweep.recipe, tracker, "finished", Progress(Console(quiet=True)))


@pytest.mark.slow
def test_a_driver_may_die_at_any_moment_of_the_end(
    died: Callable[[], Sweep], moments: Callable[[int | None], None], command: Command
) -> None:
    sweep = died()
    storage = sweep.folder.parent
    _end(sweep)
    whole = _runs(storage)
    assert {status for status, _, _ in whole.values()} == {"FINISHED"}
    assert not sweep.record.end_due
    number, finished = 0, False
    while not finished:
        sweep = died()
        moments(number)
        try:
            _end(sweep)
            finished = True
        except _Died:
            assert sweep.record.end_due
        moments(None)
        words = ("status", "front")[number % 2]
        code, out, err = command(words, "one", "--storage", str(storage))
        assert code == 0, err
        assert "Pareto front of one" in out
        assert "KILLED" not in err
        assert _runs(storage) == whole, number
        assert (sweep.folder / "front.svg").is_file()
        assert (sweep.record.state, sweep.record.end_due) == ("finished", False)
        number += 7
    assert number > 28


@pytest.mark.slow
def test_a_driver_that_dies_before_the_end_leaves_nothing_running_and_its_sweep_goes_on(
    tmp_path: Path, command: Command
) -> None:
    with driver_lock(tmp_path / "one", "one"):
        sweep = sweep_of(tmp_path, "one", 2, state=None)
        sweep.update(wanted=5)
    code, out, err = command("status", "one", "--storage", str(tmp_path))
    assert code == 0, err
    assert out.startswith("sweep one: interrupted; 2 complete of 5\n")
    assert "go on with: edp-sweep resume one" in out
    status, tags, _ = _runs(tmp_path)["one"]
    assert (status, tags["state"]) == ("KILLED", "interrupted")
    assert not sweep.record.end_due
    assert (sweep.folder / "front.svg").is_file()


@pytest.mark.slow
def test_what_mlflow_does_not_take_is_said_and_the_front_is_shown(tmp_path: Path, command: Command) -> None:
    with driver_lock(tmp_path / "one", "one"):
        sweep = sweep_of(tmp_path, "one", 2, state=None)
    store = tmp_path / "mlflow.db"
    store.rename(tmp_path / "away.db")
    code, out, err = command("front", "one", "--storage", str(tmp_path))
    assert code == 0, err
    assert "Pareto front of one" in out
    assert err.startswith("note: MLflow lacks the end of one: tracking-uri = ")
    assert len(err.splitlines()) == 1
    _client(tmp_path)._tracking_client.store.engine.dispose()
    (tmp_path / "away.db").rename(store)
    assert command("front", "one", "--storage", str(tmp_path))[2] == ""
    assert not sweep.record.end_due


def test_a_sweep_that_runs_is_only_looked_at(tmp_path: Path, command: Command) -> None:
    with driver_lock(tmp_path / "one", "one"):
        sweep = sweep_of(tmp_path, "one", 0, tracked=False, state=None)
        assert command("status", "one", "--storage", str(tmp_path))[0] == 0
        assert sweep.record.end_due


@pytest.fixture
def lossy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Tracker, Callable[[int, bool], None]]:
    """A tracker whose store creates runs more often than it answers."""
    tracker = Tracker(f"sqlite:///{tmp_path / 'mlflow.db'}", "e", tmp_path / "artifacts")
    tracker._is_server = True  # a database's answer cannot be lost
    create = tracker.client.create_run

    def ask(times: int, answered: bool) -> None:
        def create_run(*about: Any, **more: Any) -> Any:
            made = [create(*about, **more) for _ in range(times)]
            if not answered:
                raise ConnectionError("the answer is lost")
            return made[-1]

        monkeypatch.setattr(tracker.client, "create_run", create_run)

    return tracker, ask


@pytest.mark.slow
@pytest.mark.parametrize(("times", "answered"), [(1, True), (1, False), (2, True), (2, False), (0, False)])
def test_a_run_whose_creation_was_repeated_or_not_answered_is_there_once(
    times: int, answered: bool, lossy: tuple[Tracker, Callable[[int, bool], None]]
) -> None:
    tracker, ask = lossy
    ask(times, answered)
    run = tracker.start("s-000", params={"a": 1}, tags={"role": "trial"}, parent="p")
    found = tracker.client.search_runs([tracker.experiment_id])
    assert [one.info.run_id for one in found] == ([run] if times else [])
    assert tracker.failures == (0 if times else 1)
    if times:
        assert found[0].data.params == {"a": "1"}


@pytest.mark.slow
def test_a_run_that_was_created_too_late_is_found_by_its_name_and_gets_what_it_lacks(
    lossy: tuple[Tracker, Callable[[int, bool], None]],
) -> None:
    tracker, _ = lossy
    late = tracker.client.create_run(
        tracker.experiment_id, run_name="s-000", tags={"mlflow.parentRunId": "p", "role": "trial"}
    )
    assert tracker.find("p", "s-000") == late.info.run_id
    tracker.client.log_param(late.info.run_id, "a", "1")
    tracker.reopen(late.info.run_id, {"a": 1, "b": 2})
    assert tracker.client.get_run(late.info.run_id).data.params == {"a": "1", "b": "2"}
    other = tracker.start("s-000", params={}, tags={"role": "trial"}, parent="p")
    assert other is not None
    tracker.delete_strays("p", {other})
    assert [run.info.run_id for run in tracker.client.search_runs([tracker.experiment_id])] == [other]
    assert tracker.failures == 0
