"""What a user names to be written is a regular file, whole or not at all, or standard output."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.text.paths import check_output, output
from tests.conftest import Command
from tests.support.synthetic import sweep_of


@pytest.fixture
def special(tmp_path: Path) -> dict[str, Path]:
    """Return paths where no file can be written, by what is said of each."""
    (tmp_path / "folder.html").mkdir()
    os.mkfifo(tmp_path / "pipe.html")
    os.symlink("/dev/null", tmp_path / "device.html")
    os.symlink(tmp_path / "loop.html", tmp_path / "loop.html")
    (tmp_path / "file").write_text("")
    return {
        "folder.html'.* not a file": tmp_path / "folder.html",
        "pipe.html'.* not a file": tmp_path / "pipe.html",
        "device.html'.* not a file": tmp_path / "device.html",
        "Too many levels": tmp_path / "loop.html",
        "No such file": tmp_path / "nowhere" / "x.html",
        "Not a directory": tmp_path / "file" / "x.html",
        "File name too long": tmp_path / f"{'x' * 300}.html",
    }


def test_what_is_no_regular_file_is_refused_and_left_alone(special: dict[str, Path], tmp_path: Path) -> None:
    before = {path: os.lstat(path).st_mode for path in tmp_path.iterdir()}
    for says, path in special.items():
        with pytest.raises(UserError, match=says):
            check_output(path)
        with pytest.raises(UserError, match=says), output(path) as file:
            file.write("x")
    assert {path: os.lstat(path).st_mode for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["/dev/null", "/proc/self/mem", "/dev/full"])
def test_a_device_is_never_replaced(name: str) -> None:
    before = os.stat(name).st_mode
    with pytest.raises(UserError), output(Path(name)) as file:
        file.write("x")
    assert os.stat(name).st_mode == before


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    path.chmod(0o600)

    def half() -> None:
        with output(path) as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert path.read_text() == "before"
    with output(path) as file:
        file.write("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_pick_and_data_make_print_what_they_would_write(tmp_path: Path, command: Command) -> None:
    sweep_of(tmp_path / "runs", "base", 4)
    words = ("pick", "base", "--storage", str(tmp_path / "runs"), "--output")
    code, printed, err = command(*words, "-")
    assert code == 0, err
    assert "picked trial" in err
    code, out, err = command(*words, str(tmp_path / "picked.yaml"))
    assert code == 0, err
    written = (tmp_path / "picked.yaml").read_text()
    assert [line for line in printed.splitlines() if not line.startswith("#")] == [
        line for line in written.splitlines() if not line.startswith("#")
    ]
    code, _, err = command(*words, "-", "--json")
    assert (code, err.count("\n")) == (2, 1)
    code, out, err = command("data", "make", "video", "--utterances", "20", "--output", "/dev/stdout")
    assert code == 0, err
    assert [set(json.loads(line)) for line in out.splitlines()] == [{"tokens", "tags", "intent"}] * 20
