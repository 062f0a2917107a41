"""A sweep is stopped from another shell as by Ctrl-C."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sweeps.engine.dying import interruptible, stop_requests, stopping_jobs
from sweeps.store.lock import driver_lock
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from tests.support.waiting import wait_for


@contextmanager
def running(folder: Path, sent: list[str]) -> Iterator[None]:
    """Run the block as a sweep's driver does, and collect what it sends to its jobs."""
    signal = cast(Any, SimpleNamespace(send=sent.append))
    with stop_requests(folder), interruptible(), stopping_jobs(signal, lambda line: None, "go on", lambda: None):
        yield


@pytest.mark.slow
def test_a_request_is_a_ctrl_c_and_a_second_one_ends_at_once(tmp_path: Path, command: Command) -> None:
    sweep, sent = sweep_of(tmp_path / "runs", "one", 1), list[str]()
    words = ("stop", "one", "--storage", str(tmp_path / "runs"))
    code, _, err = command(*words)
    assert (code, err) == (2, "edp-sweep: name = 'one' is not running; allowed: a sweep that runs\n")
    with driver_lock(sweep.folder, "one"), running(sweep.folder, sent):
        code, out, _ = command(*words)
        assert code == 0
        assert out.startswith("one stops as by Ctrl-C, at once if asked again; what was stopped says how to go on")
        wait_for(lambda: sent)
        (sweep.folder / "stop").touch()
        with pytest.raises(KeyboardInterrupt):
            wait_for(lambda: False)
    assert sent == ["stopped by Ctrl-C"]
    assert not (sweep.folder / "stop").exists()


def test_a_request_to_a_driver_that_died_stops_no_later_one(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    with driver_lock(tmp_path, "one"):
        assert not (tmp_path / "stop").exists()


def test_what_would_follow_a_request_in_the_last_second_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), stop_requests(tmp_path):
        (tmp_path / "stop").touch()
    assert not (tmp_path / "stop").exists()


def test_a_request_to_a_sweep_of_another_thread_interrupts_no_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.engine.dying._STOP_EVERY_S", 0.05)

    def sweep() -> None:
        with stop_requests(tmp_path):
            (tmp_path / "stop").touch()
            time.sleep(0.2)

    thread = threading.Thread(target=sweep)
    thread.start()
    thread.join()
    assert (tmp_path / "stop").exists()


@pytest.mark.slow
def test_the_release_of_a_sweep_is_stopped_by_the_sweeps_name(tmp_path: Path, command: Command) -> None:
    sweep_of(tmp_path, "one", 1)
    release = tmp_path / "train-one-release"
    sent = list[str]()
    with driver_lock(release, "train-one-release"), running(release, sent):
        assert command("stop", "one", "--storage", str(tmp_path))[0] == 0
        wait_for(lambda: sent)


@pytest.mark.slow
def test_a_request_that_nobody_takes_is_an_error_and_is_withdrawn(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.commands.run._TAKEN_S", 0.2)
    sweep = sweep_of(tmp_path, "one", 1)
    with driver_lock(sweep.folder, "one"):
        code, _, err = command("stop", "one", "--storage", str(tmp_path))
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("edp-sweep: name = 'one': its driver has not taken the request in 0.2 s")
    assert not (sweep.folder / "stop").exists()
