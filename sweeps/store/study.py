"""The study's database. Only the driver writes to it; every other process reads."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import event
from sqlalchemy.exc import OperationalError, ProgrammingError, SQLAlchemyError

from edp.spec import UserError
from sweeps.store.sqlite_locks import PATIENCE_S, causes, is_locked, may_be_whole
from sweeps.store.storage import sqlite_file
from sweeps.text.errors import missing_driver
from sweeps.text.secrets import redacted
from trainables.records.files import atomic_write

_say_once = functools.cache(logging.getLogger(__name__).warning)
optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every new study and every ended trial
_checked = set[str]()
"""Databases whose tables are known to be this Optuna's. Each check runs all of Optuna's migration files."""
_PAUSE_S = 1.0
_ENGINE: dict[str, Any] = {"pool_pre_ping": True}


class StudyGone(Exception):
    """The study is missing or cannot be read; the text says which."""


class StudyAway(UserError):
    """The study's database does not answer now, and may be whole."""


def study_storage(url: str) -> RDBStorage:
    """Open the database at `url`, with variables of the environment replaced; create missing tables.

    A SQLite file that another process has locked is waited for, now and in each later call. A server that has answered
    is waited for if it goes away.

    Raises:
        UserError: if it cannot be opened.
    """
    settled = os.path.expandvars(url)
    waiting = {"connect_args": {"timeout": PATIENCE_S}} if sqlite_file(settled) is not None else {}
    try:
        storage = RDBStorage(settled, heartbeat_interval=None, engine_kwargs=_ENGINE | waiting)
        if not waiting:
            event.listen(storage.engine, "do_connect", _connected)
        return storage
    except ImportError as error:
        raise UserError(f"search.study = {url!r} cannot be opened: {missing_driver(error)}") from None
    except (SQLAlchemyError, RuntimeError, ValueError, OSError) as error:
        reason = _reason(error, url)
        raise UserError(
            f"search.study = {url!r} cannot be opened; allowed: a database URL that can be written ({reason})"
        ) from None


def _connected(dialect: Any, record: Any, arguments: Any, options: Any) -> Any:
    """Connect to the server of a study as soon as it answers: a move to another node takes minutes."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            if time.monotonic() >= until:
                raise
            _say_once("the study's database does not answer: waiting until it does")
            time.sleep(_PAUSE_S)


def away(error: BaseException) -> str | None:
    """Return in words that a study that is locked or away caused `error`; None for another error."""
    if is_locked(error):
        return "another process has locked the study's file"
    for one in causes(error):
        if isinstance(one, OperationalError) and not isinstance(one.orig, sqlite3.Error):
            return f"the study's database does not answer ({redacted(' '.join(str(one.orig).split()))[:200]})"
    return None


def read_study(url: str, name: str) -> tuple[optuna.Study, list[FrozenTrial]]:
    """Return a study with all its trials, as Optuna stores them.

    Raises:
        StudyGone: if the database or the study is missing, or cannot be read.
        StudyAway: if the database does not answer.
        UserError: if its driver is not installed.
    """
    settled = os.path.expandvars(url)
    file = sqlite_file(settled)
    if file is not None and not file.exists():
        raise StudyGone(f"{file} is not there")
    try:
        # Missing tables stay missing: a reader must not turn another file into a study.
        storage = RDBStorage(
            settled,
            engine_kwargs=dict(_ENGINE),
            skip_compatibility_check=settled in _checked,
            heartbeat_interval=None,
            skip_table_creation=True,
        )
        _checked.add(settled)
        study = optuna.load_study(study_name=name, storage=storage)
        return study, study.get_trials(deepcopy=False)
    except ImportError as error:
        raise UserError(f"search.study = {url!r} cannot be opened: {missing_driver(error)}") from None
    except KeyError:
        raise StudyGone(f"{file or url} holds no study of this name") from None
    except Exception as error:  # of SQLAlchemy, SQLite, Alembic or Optuna
        no_tables = isinstance(error.__cause__, ProgrammingError)  # in a server's database that is new
        if may_be_whole(error, file) if file is not None else not no_tables:
            raise StudyAway(_not_now(error, url)) from None
        raise StudyGone(f"{file or url} cannot be read ({_reason(error, url)})") from None


def back_up(study: optuna.Study, copy: Path) -> None:
    """Replace the second copy of a study by SQLite's own backup of it, in one step. A study in memory has none.

    Raises:
        sqlite3.DatabaseError: if the study's file is damaged. The copy is then left as it is.
    """
    backend = getattr(study._storage, "_backend", None)
    if backend is None:
        return
    with (
        atomic_write(copy) as partial,
        closing(backend.engine.raw_connection()) as source,
        closing(sqlite3.connect(partial)) as target,
    ):
        # `backup` waits while the file is locked, and answers Ctrl-C only in its callback.
        source.driver_connection.backup(target, progress=lambda *_: None)
        if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError(f"{backend.url} is damaged; its copy {copy} is not")


def restore(study: Path, copy: Path) -> None:
    """Replace the file of a study that is gone by its copy."""
    for end in ("-journal", "-wal", "-shm"):  # SQLite would apply what a dead process left to the new file
        study.with_name(study.name + end).unlink(missing_ok=True)
    with atomic_write(study) as partial:
        shutil.copyfile(copy, partial)


def _not_now(error: BaseException, url: str) -> str:
    """Return the message that a study, which may be whole, cannot be read."""
    if is_locked(error):
        file = sqlite_file(os.path.expandvars(url))
        return f"{file} is locked by another process; allowed: another try when that process is done with it"
    return f"search.study = {url!r} cannot be read now ({_reason(error, url)}); allowed: a database that answers"


def _reason(error: BaseException, url: str) -> str:
    # Optuna's own message guesses at the cause, which it keeps.
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    text = " ".join(str(getattr(cause, "orig", None) or cause).split()) or type(cause).__name__
    return redacted(text, os.path.expandvars(url))[:200]
