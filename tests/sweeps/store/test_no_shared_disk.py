"""Where machines share no disk: the study is in PostgreSQL, artifacts are on MLflow's server, the folder is copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.conftest import Command
from tests.support.mlflow_server import Server
from tests.support.postgres import postgres
from tests.support.synthetic import sweep_of


@pytest.mark.slow
def test_a_copy_of_the_folder_on_another_machine_finds_trials_and_artifacts(
    long_story: None, tmp_path: Path, command: Command
) -> None:
    here, there = tmp_path / "a" / "runs", tmp_path / "b" / "runs"
    with postgres() as study:
        server = Server(tmp_path)
        try:
            made = sweep_of(here, "s", 3, f"search.study={study}", tracking_uri=server.uri)
            run_id = made.record.run_id
            assert not list(here.rglob("*.db")), "a copy of the folder must hold no database that was being written"
            shutil.copytree(here, there)
            shutil.rmtree(here)
            code, out, err = command("status", "s", "--json", "--storage", str(there))
            assert code == 0, err
            assert [trial["state"] for trial in json.loads(out)["trials"]] == ["complete"] * 3
            code, _, err = command("resume", "s", "--storage", str(there))
            assert code == 0, err
            code, _, err = command("pick", "s", "--output", str(tmp_path / "picked.yaml"), "--storage", str(there))
            assert code == 0, err
            assert not here.exists()
            client = MlflowClient(server.uri)
            assert client.get_run(run_id).info.artifact_uri.startswith("mlflow-artifacts:")
            assert "front.svg" in {artifact.path for artifact in client.list_artifacts(run_id)}
        finally:
            server.stop()


@pytest.mark.parametrize("address", ["file:///x", "S3://k:SeCrEt@bucket/x"])
def test_an_address_is_no_storage_folder(address: str, command: Command) -> None:
    code, _, err = command("list", "--storage", address)
    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert "an address is not supported; allowed: a folder" in err
    assert "docs/cluster.md" in err
    assert "SeCrEt" not in err
