"""`--storage s3://…`: commands on several machines, and addresses that lead nowhere."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import BinaryIO

import pytest

from sweeps.state import storage
from sweeps.state.bucket import Bucket, StoreError
from sweeps.state.storage import close_storages
from tests.conftest import Command
from tests.support.machines import Machine, address, contents, machine, s3, settles_at_once
from tests.support.s3_server import S3
from tests.support.synthetic import sweep_of

__all__ = ["address", "machine", "s3", "settles_at_once"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ftp://x/y", "no object store's address; allowed: s3://BUCKET/FOLDER, gs://"),
        ("s3://", "no object store's address"),
        ("file:///", "no object store's address"),
        ("s3://key:SeCrEt@bucket/x", "allowed: keys in the environment"),
        ("s3://bucket/x?secret_key=SeCrEt", "allowed: keys in the environment"),
        ("s3://bucket/x?endpoint_override=127.0.0.1:9&scheme=http&region=r", "cannot be read .*allowed: a bucket that"),
    ],
)
def test_a_bad_address_is_one_line(
    text: str, complaint: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(storage.WORK, str(tmp_path))
    for name, value in S3.environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = command("status", "--storage", text)
    assert code == 2
    assert out == ""
    assert re.search(complaint, err), err
    assert len(err.splitlines()) == 1
    assert "SeCrEt" not in err


@pytest.mark.parametrize("wrong", ["another key", "another bucket"])
def test_a_bucket_that_is_not_ones_own_is_one_line(
    wrong: str, s3: S3, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(storage.WORK, str(tmp_path))
    key = "somebody" if wrong == "another key" else "user"
    for name, value in {**S3.environment, "AWS_ACCESS_KEY_ID": key}.items():
        monkeypatch.setenv(name, value)
    address = s3.address("x") if wrong == "another key" else s3.address("x").replace("s3://sweeps", "s3://other")
    code, _, err = command("run", "quickstart", "--name", "one", "--storage", address)
    assert code == 2
    assert len(err.splitlines()) == 1, err
    assert "allowed: a bucket that answers, with keys" in err
    assert "SeCrEt" not in err


def test_a_cluster_is_asked_for_a_folder_that_its_machines_see(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(storage.WORK, raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    code, _, err = command("list", "--storage", tmp_path.as_uri())
    assert code == 2
    assert "allowed: EDP_WORK_DIR=FOLDER in the environment" in err


@pytest.mark.slow
def test_commands_on_another_machine_find_the_sweep_and_what_they_keep_comes_back(
    address: str, machine: Machine, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep_of(machine("a"), "s", 3)
    assert json.loads((made.folder / "sweep.json").read_text())["tracking_uri"] == "sqlite:///mlflow.db"
    close_storages()
    monkeypatch.setenv(storage.WORK, str(tmp_path / "b"))
    code, out, err = command("status", "s", "--json", "--storage", address)
    assert code == 0, err
    status = json.loads(out)
    assert [trial["state"] for trial in status["trials"]] == ["complete"] * 3
    assert str(tmp_path / "b") in status["tracking_uri"]
    code, out, err = command("pick", "s", "--output", str(tmp_path / "picked.yaml"), "--storage", address)
    assert code == 0, err
    assert f"--storage {shlex.quote(address)}" in out + err, "what to type next names the store"
    there = contents(next((tmp_path / "b").iterdir()))
    here = contents(machine("a"))
    assert here["s/picks.json"] == there["s/picks.json"]
    code, out, err = command("list", "--storage", address)
    assert "s  finished  3 trials" in out


@pytest.mark.slow
def test_a_store_that_fails_at_the_end_fails_the_command_and_loses_nothing(
    address: str, machine: Machine, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_of(machine("a"), "s", 3)
    close_storages()

    def gone(self: Bucket, name: str, file: BinaryIO) -> str:
        raise StoreError(f"storage = {self.address!r} cannot be written (it is gone)")

    words = ("pick", "s", "--output", str(tmp_path / "picked.yaml"), "--storage", address)
    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_file", gone)
        code, _, err = command(*words)
    assert code == 2
    assert "cannot be written (it is gone)" in err
    code, _, err = command(*words, "--force")
    assert code == 0, err
    assert len(json.loads((machine("b") / "s" / "picks.json").read_text())) == 2
