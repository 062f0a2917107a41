"""One driver a sweep, no password anywhere, and a store that may be gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.store.lock import driver_lock
from sweeps.text.secrets import redacted
from sweeps.tracking.store import settled_uri
from sweeps.tracking.tracker import Figures, Tracker

HOLDER = """
import sys, time
from pathlib import Path
from sweeps.store.lock import driver_lock
with driver_lock(Path(sys.argv[1]), "s"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_sweep_has_one_driver_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"name = 's' is running \\(process {holder.pid} on "),
            driver_lock(tmp_path, "s"),
        ):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with driver_lock(tmp_path, "s"):
            pass


def test_a_password_is_neither_shown_nor_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    uri = "postgresql://me:s3cret@db.example/mlflow"
    assert redacted(uri) == "postgresql://me:***@db.example/mlflow"
    assert redacted("sqlite:////tmp/x.db") == "sqlite:////tmp/x.db"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError, match="is not kept; give the whole"):
        settled_uri(None, redacted(uri))
    assert settled_uri(uri, redacted(uri)) == uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert settled_uri(None, redacted(uri)) == uri
    with pytest.raises(UserError) as refused:
        Tracker("http://me:s3cret@127.0.0.1:9", "e", tmp_path)
    assert "s3cret" not in str(refused.value)


@pytest.mark.slow
def test_what_a_store_does_not_take_is_counted_said_once_and_sent_once_later(tmp_path: Path) -> None:
    said: list[str] = []
    store = tmp_path / "mlflow.db"
    tracker = Tracker(f"sqlite:///{store}", "e", tmp_path / "artifacts", said.append)
    parent = tracker.start("p", params={}, tags={})
    run = tracker.start("s-000", params={"trial": 0}, tags={"role": "trial"}, parent=parent)
    assert parent is not None
    assert run is not None
    tracker.log(run, Figures({"ser": 0.5}, 1))
    assert tracker.failures == 0

    tracker.client._tracking_client.store.engine.dispose()
    store.rename(tmp_path / "gone.db")
    store.mkdir()  # nothing can be opened here
    tracker.log(run, Figures({"ser": 0.4}, 2))
    tracker.log(run, Figures({"ser": 0.3}, 3))
    assert tracker.failures == 2
    assert len(said) == 1
    assert said[0].startswith("MLflow takes nothing at the moment")

    store.rmdir()
    (tmp_path / "gone.db").rename(store)
    tracker.try_now()
    for _ in range(2):
        tracker.log_missing(run, {1: {"ser": 0.5}, 2: {"ser": 0.4}, 3: {"ser": 0.3}})
    history = tracker.client.get_metric_history(run, "ser")
    assert [(metric.step, metric.value) for metric in sorted(history, key=lambda m: m.step)] == [
        (1, 0.5),
        (2, 0.4),
        (3, 0.3),
    ]
    assert tracker.failures == 2
    assert said[1:] == ["MLflow answers again"]
    assert tracker.find(parent, "s-000") == run
    assert tracker.find(parent, "s-001") is None
