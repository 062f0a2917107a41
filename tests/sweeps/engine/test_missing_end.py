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
    long_story: None, died: Callable[[], Sweep], moments: Callable[[int | None], None], command: Command
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
