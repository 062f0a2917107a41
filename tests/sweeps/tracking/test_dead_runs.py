"""A run whose process was killed is not RUNNING for ever; one whose process lives is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from sweeps.store.lock import claimed, driver_lock
from sweeps.store.storage import default_tracking_uri
from sweeps.tracking.tracker import Tracker

Kill = Callable[[int, int], None]

STARTER = """
import sys, time
from pathlib import Path
from sweeps.store.lock import driver_lock
from sweeps.store.storage import default_tracking_uri
from sweeps.tracking.tracker import Tracker
storage = Path(sys.argv[1])
with driver_lock(storage / "s", "s"):
    tracker = Tracker(default_tracking_uri(storage), "train", storage / "mlflow-artifacts")
    print(tracker.start("a run", params={}, tags={}), flush=True)
    time.sleep(600)
"""


@contextmanager
def _starter(storage: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds the lock of `s` and has started a run; it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(storage)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def _tracker(storage: Path, said: list[str] | None = None) -> Tracker:
    say = said.append if said is not None else lambda line: None
    return Tracker(default_tracking_uri(storage), "train", storage / "mlflow-artifacts", say)


def _status(tracker: Tracker, run_id: str) -> str:
    return str(tracker.client.get_run(run_id).info.status)


def test_a_killed_process_leaves_no_run_that_runs(tmp_path: Path, kill: Kill) -> None:
    with _starter(tmp_path) as (process, run_id):
        said: list[str] = []
        assert _status(_tracker(tmp_path, said), run_id) == "RUNNING", "it lives"
        assert not said
        kill(process.pid, SIGKILL)
        process.wait()
        assert _status(_tracker(tmp_path, said), run_id) == "KILLED"
        assert said == [f"MLflow run {run_id} is ended as KILLED: the process that started it has died"]


def test_whoever_takes_the_lock_next_ends_it_and_keeps_its_own(tmp_path: Path, kill: Kill) -> None:
    with _starter(tmp_path) as (process, run_id):
        kill(process.pid, SIGKILL)
        process.wait()
        with driver_lock(tmp_path / "s", "s"):
            own = _tracker(tmp_path).start("another", params={}, tags={})
            assert own is not None
            again = _tracker(tmp_path)
            assert (_status(again, run_id), _status(again, own)) == ("KILLED", "RUNNING")
            again.reopen(run_id)
            assert _status(_tracker(tmp_path), run_id) == "RUNNING", "it is gone on with"


def test_a_store_that_another_storage_shares_is_left_alone(tmp_path: Path, kill: Kill) -> None:
    with _starter(tmp_path / "one") as (process, run_id):
        kill(process.pid, SIGKILL)
        process.wait()
        (tmp_path / "two").mkdir()
        uri = default_tracking_uri(tmp_path / "one")
        with claimed(tmp_path / "two" / "s", "s"):
            other = Tracker(uri, "train", tmp_path / "two" / "mlflow-artifacts")
            other.start("of another storage", params={}, tags={})
            assert _status(Tracker(uri, "train", tmp_path / "two" / "mlflow-artifacts"), run_id) == "RUNNING"
