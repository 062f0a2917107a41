"""What nobody foresaw is one line, and its traceback stands in a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray.exceptions import ActorDiedError

from sweeps.commands import app as cli
from tests.conftest import Command


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
    assert ("a process that it needs died" if "actor" in text else "a machine is short of memory") in err
    assert not log.exists()


def test_a_password_does_not_get_into_the_log(log: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object, **options: object) -> None:
        raise RuntimeError("cannot reach postgresql://me:s3cret@host/db")

    monkeypatch.setattr(cli, "app", broken)
    command("list")
    assert "s3cret" not in log.read_text()
    assert "postgresql://me:***@host/db" in log.read_text()
