"""What nobody foresaw is one line, and its traceback stands in a log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError

from sweeps.commands import app as cli
from tests.conftest import Command

ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "edp-sweeps" / "log" / "errors.log"


@pytest.mark.parametrize("error", [KeyError("ser"), RecursionError(), RuntimeError("one\ntwo"), ZeroDivisionError()])
def test_an_unexpected_error_is_one_line_with_its_place_in_the_log(
    error: Exception, log: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", broken)
    for line in (1, None):
        code, out, err = command("list")
        assert code == 1
        assert out == ""
        assert len(err.splitlines()) == 1
        assert f"unexpected {type(error).__name__}" in err
        assert "please report it" in err
        assert str(log) in err.replace("\n", "")
        assert line is None or f"{log}, line {line}" in err
    assert log.read_text().count("Traceback (most recent call last)") == 2


@pytest.mark.parametrize(
    "text", ["6 worker(s) were killed due to the node running low on memory. Ray logs\nmore", "the actor died"]
)
def test_a_process_of_ray_that_died_is_no_bug(
    text: str, log: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, **options: object) -> None:
        try:
            raise ActorDiedError() if "actor" in text else RuntimeError(text)
        except Exception as error:
            raise ValueError("Tune") from error

    monkeypatch.setattr(cli, "app", broken)
    code, _, err = command("list")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert ("a process that it needs died" if "actor" in text else "a machine is short of memory") in err
    assert not log.exists()


def test_a_password_does_not_get_into_the_log(log: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object, **options: object) -> None:
        raise RuntimeError("cannot reach postgresql://me:s3cret@host/db")

    monkeypatch.setattr(cli, "app", broken)
    command("list")
    assert "s3cret" not in log.read_text()
    assert "postgresql://me:***@host/db" in log.read_text()


def test_a_log_that_cannot_be_written_takes_nothing_away_from_the_line(
    log: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "state"))
    monkeypatch.setattr(cli, "app", lambda *words, **options: 1 / 0)
    code, _, err = command("list")
    assert code == 1
    assert "unexpected ZeroDivisionError" in err
    assert "no log" in err


def test_a_thread_that_dies_says_nothing_on_the_terminal(
    log: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts_a_thread(*words: object, **options: object) -> None:
        thread = threading.Thread(target=lambda: {}["gone"])
        thread.start()
        thread.join()

    monkeypatch.setattr(cli, "app", starts_a_thread)
    code, out, err = command("list")
    assert (code, out, err) == (0, "", "")
    assert "KeyError: 'gone'" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["| true", "<&- >&- 2>&-", ">/dev/full"])
def test_whatever_the_standard_streams_are_there_is_no_traceback(streams: str, tmp_path: Path) -> None:
    line = f"{sys.executable} -m dashboards.cli data make --help {streams}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, check=False)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


@pytest.mark.slow
def test_words_that_are_no_utf_8_and_terminals_that_lack_letters_are_printed_all_the_same(tmp_path: Path) -> None:
    for encoding in ("ascii", "utf-8"):
        ended = subprocess.run(
            [sys.executable.encode(), b"-m", b"dashboards.cli", b"status", b"\xff\xe9"],
            capture_output=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding},
            cwd=tmp_path,
            check=False,
        )
        assert ended.returncode == 2, ended.stderr
        assert b"name = " in ended.stderr
        assert ended.stderr.count(b"\n") == 1
