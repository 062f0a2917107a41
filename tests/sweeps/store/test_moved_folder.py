"""A storage folder that is moved or copied keeps working, once MLflow's store has the new paths."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from sweeps.store.sweep import Sweep
from sweeps.text.paths import sqlite_url
from sweeps.tracking.tracker import Tracker
from tests.support.synthetic import sweep_of

PAGE = Path(__file__).parents[3] / "docs" / "troubleshooting.md"


def tell_the_new_paths(old: Path, new: Path) -> None:
    """Run what the page on troubleshooting says to type after a move."""
    (script,) = re.findall(r"<<'END'\n(.*?)^END$", PAGE.read_text(), flags=re.S | re.M)
    subprocess.run([sys.executable, "-", str(old), str(new)], input=script, text=True, check=True)


_MOVED = """
import json, mlflow, sys
from sweeps.commands.app import main
lines, store, downloads = json.load(sys.stdin)
for sys.argv in lines:
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, sys.argv
mlflow.set_tracking_uri(store)
for uri, target in downloads.items():
    mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=target)
"""
"""MLflow remembers where a run's artifacts were: only another process looks for them anew."""


@pytest.mark.slow
def test_every_command_and_mlflow_itself_find_runs_artifacts_and_models_in_the_new_place(
    long_story: None, tmp_path: Path
) -> None:
    old, new = tmp_path / "old" / "runs", tmp_path / "elsewhere" / "möved 100%"
    made = sweep_of(old, "s", 3)
    run_id, client = made.record.run_id, MlflowClient(made.record.tracking_uri)
    assert json.loads((made.folder / "sweep.json").read_text())["tracking_uri"] == "sqlite:///mlflow.db"
    (tmp_path / "model.txt").write_text("weights")
    client.log_artifact(run_id, str(tmp_path / "model.txt"), "served")
    client.create_registered_model("m")
    client.create_model_version("m", f"{client.get_run(run_id).info.artifact_uri}/served", run_id)
    new.parent.mkdir()
    shutil.move(old, new)
    tell_the_new_paths(old, new)
    lines = [
        ["edp-sweep", *words, "--storage", str(new)]
        for words in (
            ("status", "s"),
            ("pick", "s", "--output", str(tmp_path / "picked.yaml")),
            ("resume", "s"),
            ("report", "s", "--output", str(tmp_path / "report.html")),
        )
    ]
    downloads = {f"runs:/{run_id}/served": str(tmp_path / "run"), "models:/m/1": str(tmp_path / "version")}
    done = json.dumps([lines, sqlite_url(new / "mlflow.db"), downloads])
    ended = subprocess.run([sys.executable, "-c", _MOVED], input=done, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for target in downloads.values():
        assert [file.read_text() for file in Path(target).rglob("model.txt")] == ["weights"]
    assert not old.exists(), "nothing was made where it had been"
    sweep = Sweep.existing(new, "s")
    assert "front.svg" in {artifact.path for artifact in MlflowClient(sweep.record.tracking_uri).list_artifacts(run_id)}


_COPIED = """
import json, mlflow, sys
from sweeps.commands.app import main
line, store, run_id, file = json.load(sys.stdin)
sys.argv = line
try:
    main()
except SystemExit as ended:
    assert not ended.code, sys.argv
client = mlflow.MlflowClient(store)
client.log_artifact(run_id, file)
assert "model.txt" in {one.path for one in client.list_artifacts(run_id)}
experiment = client.get_run(run_id).info.experiment_id
client.log_artifact(client.create_run(experiment).info.run_id, file)
"""


@pytest.mark.slow
def test_what_is_done_in_a_copy_changes_nothing_in_the_original(long_story: None, tmp_path: Path) -> None:
    old, new = tmp_path / "öld" / "runs", tmp_path / "a copy 100%"
    made = sweep_of(old, "s", 3)
    shutil.copytree(old, new)
    tell_the_new_paths(old, new)
    (tmp_path / "model.txt").write_text("weights")

    def files(storage: Path) -> dict[Path, int]:
        return {path.relative_to(storage): path.stat().st_mtime_ns for path in storage.rglob("*") if path.is_file()}

    before, copied = files(old), files(new)
    line = ["edp-sweep", "resume", "s", "--storage", str(new)]
    given = json.dumps([line, sqlite_url(new / "mlflow.db"), made.record.run_id, str(tmp_path / "model.txt")])
    ended = subprocess.run([sys.executable, "-c", _COPIED], input=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert files(old) == before
    added = [path for path in files(new).keys() - copied.keys() if path.name == "model.txt"]
    assert len(added) == 2, "of an earlier run and of a new one"


def test_artifacts_are_in_the_storage_folder_whatever_store_it_uses(tmp_path: Path) -> None:
    """The artifacts of a sweep are in its own storage folder, also if --tracking-uri names another folder's store."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    for storage, experiment in ((shared, "theirs"), (own, "other")):
        Tracker(sqlite_url(storage / "mlflow.db"), experiment, storage / "mlflow-artifacts")
    tracker = Tracker(sqlite_url(shared / "mlflow.db"), "mine", own / "mlflow-artifacts")
    run = tracker.client.create_run(tracker.experiment_id)
    assert run.info.artifact_uri.startswith((own / "mlflow-artifacts" / "mine").as_uri())
