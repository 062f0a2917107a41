"""What nobody foresaw is one line, and its traceback stands in a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from sweeps.commands import app as cli
from tests.conftest import Command
from trainables.workers.client import SHORT_OF_MEMORY


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "edp-sweeps" / "log" / "errors.log"


@pytest.mark.parametrize("error", [KeyError("ser"), RuntimeError("one\ntwo")])
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
    assert ("a process that it needs died" if "actor" in text else SHORT_OF_MEMORY) in err
    assert not log.exists()


def test_an_error_of_a_task_is_that_of_its_cause_without_rays_colours(
    log: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, **options: object) -> None:
        text = "\x1b[36mray::look()\x1b[39m (pid=1, ip=127.0.0.1)\nRuntimeError: no nosuch0"
        raise RayTaskError("look", text, RuntimeError("no nosuch0"), "ray::look", 1, "127.0.0.1").as_instanceof_cause()

    monkeypatch.setattr(cli, "app", broken)
    _, _, err = command("list")
    assert "unexpected RuntimeError: no nosuch0; this is a bug" in err
    assert "ray::look()" in log.read_text()
    assert "\x1b" not in err + log.read_text()


def test_a_password_does_not_get_into_the_log(log: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object, **options: object) -> None:
        raise RuntimeError("cannot reach postgresql://me:s3cret@host/db")

    monkeypatch.setattr(cli, "app", broken)
    command("list")
    assert "s3cret" not in log.read_text()
    assert "postgresql://me:***@host/db" in log.read_text()
