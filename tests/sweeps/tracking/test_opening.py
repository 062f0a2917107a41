"""MLflow's store is made once, however many processes open it at once, and a deleted experiment is a line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.tracking.tracker import Tracker

_OPEN = """
import sys
from pathlib import Path
from sweeps.tracking.tracker import Tracker
storage = Path(sys.argv[1])
print(Tracker(f"sqlite:///{storage}/mlflow.db", "tiny", storage / "mlflow-artifacts").start("one", params={}, tags={}))
"""


@pytest.mark.slow
def test_processes_that_begin_at_once_in_a_fresh_storage_share_a_store(tmp_path: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _OPEN, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(4)
    ]
    said = [one.communicate(timeout=200)[0] for one in started]
    assert [one.returncode for one in started] == [0] * 4, said
    tracker = Tracker(f"sqlite:///{tmp_path}/mlflow.db", "tiny", tmp_path / "mlflow-artifacts", new=False)
    assert len(tracker.client.search_runs([tracker.experiment_id])) == 4


def test_a_deleted_experiment_says_how_to_restore_it(tmp_path: Path) -> None:
    uri, artifacts = f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlflow-artifacts"
    tracker = Tracker(uri, "tiny", artifacts)
    tracker.client.delete_experiment(tracker.experiment_id)
    how = f"MLFLOW_TRACKING_URI={uri} mlflow experiments restore --experiment-id {tracker.experiment_id}"
    for new in (True, False):
        with pytest.raises(UserError, match=f"its experiment 'tiny' was deleted; allowed: another store, .*{how}"):
            Tracker(uri, "tiny", artifacts, new=new)
    tracker.client.restore_experiment(tracker.experiment_id)
    assert Tracker(uri, "tiny", artifacts).experiment_id == tracker.experiment_id
