"""A file that another process has locked is whole: commands wait for it, and never advise to rebuild it."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy.engine.default import DefaultDialect

from edp.spec import UserError
from sweeps.store import sqlite_locks
from tests.conftest import Command
from tests.support.studies import result, sweep, trials
from tests.support.synthetic import sweep_of


@contextmanager
def locked(file: Path, how: str = "EXCLUSIVE") -> Iterator[None]:
    """Hold a SQLite file's lock: EXCLUSIVE against readers too, IMMEDIATE against writers."""
    with closing(sqlite3.connect(file, check_same_thread=False)) as holder:
        holder.execute(f"BEGIN {how}")
        yield


@contextmanager
def locked_for(file: Path, seconds: float, how: str = "EXCLUSIVE") -> Iterator[None]:
    """Hold a file's lock for some seconds of the block."""
    held = threading.Event()

    def hold() -> None:
        with locked(file, how):
            held.set()
            time.sleep(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    yield
    holder.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("made")
    sweep_of(storage, "base", 3)
    return storage


@pytest.fixture
def storage(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "runs")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_locks, "_others_wait_s", 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("status", "base"),
        ("pick", "base", "--output", "picked.yaml"),
        ("ui", "base", "--no-browser"),
        ("resume", "base"),
        ("list",),
    ],
    ids=lambda words: words[0],
)
def test_a_locked_study_is_one_line_that_names_no_backup_and_nothing_changes(
    words: tuple[str, ...],
    storage: Path,
    impatient: None,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(storage.rglob("*"))
    with locked(storage / "base" / "study.db"):
        code, _, err = command(*words, "--storage", str(storage))
    assert code == 2, err
    assert len(err.splitlines()) == 1, err
    assert "study.db is locked by another process; allowed: another try" in err
    assert "backup" not in err
    assert {path for path in storage.rglob("*") if path.name != "lock"} == {p for p in before if p.name != "lock"}
    assert command("status", "base", "--storage", str(storage))[0] == 0


@pytest.mark.parametrize("code", ["SQLITE_NOMEM", "SQLITE_FULL"])
def test_want_of_memory_or_disk_is_not_a_broken_study(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, recipe = sweep(tmp_path)
    assert trials(made, recipe).ask("0") is not None
    error = sqlite3.OperationalError("out of memory")
    error.sqlite_errorcode = getattr(sqlite3, code)
    for raised in (error, MemoryError(), OSError(24, "Too many open files")):
        monkeypatch.setattr(DefaultDialect, "do_execute", _raising(raised))
        with pytest.raises(UserError, match="cannot be read now") as refused:
            made.trials()
        assert "backup" not in str(refused.value)


def _raising(error: BaseException) -> Callable[..., object]:
    def fail(*about: object) -> object:
        raise error

    return fail


@pytest.mark.slow
@pytest.mark.parametrize("how", ["EXCLUSIVE", "IMMEDIATE"])
def test_a_driver_waits_longer_than_any_reader_for_its_study_and_goes_on(
    how: str, tmp_path: Path, impatient: None
) -> None:
    made, recipe = sweep(tmp_path)
    search = trials(made, recipe)
    file = made.folder / "study.db"
    assert search.ask("0") is not None
    with locked_for(file, 1.5, how):
        assert search.ask("1") is not None
    with locked_for(file, 1.5, how):
        assert search.tell("0", result(), None, []) == "complete"
