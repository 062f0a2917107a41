"""Machines that keep their sweeps in one object store: fixtures, over a folder and over S3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeps.state import lease, storage
from sweeps.state.storage import brought_down, working_folder
from tests.support.s3_server import S3, s3_server

Machine = Callable[[str], Path]
"""The working folder of a machine by this name, brought up to the store."""


@pytest.fixture(autouse=True)
def settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_SETTLE_S", 0.0)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    server: S3 = request.getfixturevalue("s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server.address(tmp_path.name)


@pytest.fixture
def machine(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    def at(name: str) -> Path:
        monkeypatch.setenv(storage.WORK, str(tmp_path / name))
        storage._open.clear()
        folder = working_folder(address, lambda line: None)
        brought_down(folder)
        return folder

    yield at
    storage._open.clear()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".mirror" not in path.parts
    }


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
