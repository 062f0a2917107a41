"""Standard output holds what a command prints, also with an MLflow server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.tracking.tracker import Tracker
from tests.support.mlflow_server import Server


@pytest.mark.slow
def test_a_run_on_a_server_prints_nothing(tmp_path: Path, long_story: None, capfd: pytest.CaptureFixture[str]) -> None:
    server = Server(tmp_path)
    try:
        tracker = Tracker(server.uri, "x", tmp_path / "mlflow-artifacts")
        run = tracker.start("one", params={}, tags={}, note="")
        assert run is not None
        tracker.end(run)
    finally:
        server.stop()
    assert capfd.readouterr().out == ""
