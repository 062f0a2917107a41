"""MLflow's store is made once, however many open it, and a sweep goes on in one that has moved, and in no other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from edp.spec import UserError
from sweeps.engine.jobs.search import resume_sweep
from sweeps.engine.progress import Progress
from sweeps.tracking.tracker import Tracker
from tests.support.synthetic import sweep_of

_OPEN = """
import sys
from pathlib import Path
from sweeps.tracking.tracker import Tracker
storage = Path(sys.argv[1])
print(Tracker(f"sqlite:///{storage}/mlflow.db", "tiny", storage / "mlflow-artifacts").start("one", params={}, tags={}))
"""


@pytest.mark.slow
def test_processes_that_begin_at_once_in_a_fresh_storage_share_a_store(long_story: None, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_the_store_that_holds_the_run_is_taken_and_another_one_of_the_same_recipe_is_not(tmp_path: Path) -> None:
    sweep, other = sweep_of(tmp_path / "runs", "mine", 1), sweep_of(tmp_path / "others", "other", 1)
    progress = Progress(Console(quiet=True))
    before = sweep.record
    with pytest.raises(UserError, match=f"holds no run {before.run_id}; allowed: the store that holds the runs"):
        resume_sweep(sweep, progress, other.record.tracking_uri)
    with pytest.raises(UserError, match="is not there; allowed: the store that holds the runs"):
        resume_sweep(sweep, progress, f"sqlite:///{tmp_path}/nowhere/x.db")
    assert sweep.record == before
    assert not (tmp_path / "nowhere").exists()
    moved = f"sqlite:///{shutil.copy(tmp_path / 'runs' / 'mlflow.db', tmp_path / 'moved.db')}"
    resume_sweep(sweep, progress, moved)
    assert sweep.record == before.model_copy(update={"tracking_uri": moved})
