"""Waiting for SQLite files that another process has locked: a backup, a viewer, a transaction that was left open.

SQLAlchemy gives up after five seconds, and Optuna and MLflow then raise errors that name another cause. Importing this
module makes all SQLAlchemy connections of the process wait, so MLflow's too, which takes no options for them.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, event

PATIENCE_S = 60.0
"""Seconds to wait for a file. A driver waits for its study without an end: its trials would be lost."""
_ATTEMPT_S = 1.0
"""Seconds that SQLite itself waits. Python answers no Ctrl-C before it returns."""
_PAUSE_S = 0.1
_SAY_AFTER_S = 2.0

_WHOLE = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
"""SQLite's codes of errors that say nothing about what the file holds."""

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def patient(act: Callable[[], Answer], passes: Callable[[Exception], bool], patience_s: float, line: str) -> Answer:
    """Return what `act` returns, which is tried again as long as its error `passes` by itself; say `line` meanwhile."""
    began, say_at = time.monotonic(), _SAY_AFTER_S
    while True:
        try:
            return act()
        except Exception as error:
            waited = time.monotonic() - began
            if not passes(error) or waited >= patience_s:
                raise
            if waited >= say_at:
                _log.warning("%s", line)
                say_at = max(60.0, 2 * waited)
            time.sleep(_PAUSE_S)


class _Cursor(sqlite3.Cursor):
    """A cursor whose statements wait."""

    connection: PatientConnection

    def execute(self, *statement: Any) -> _Cursor:
        return self.connection.waiting(lambda: super(_Cursor, self).execute(*statement))

    def executemany(self, *statement: Any) -> _Cursor:
        return self.connection.waiting(lambda: super(_Cursor, self).executemany(*statement))


class PatientConnection(sqlite3.Connection):
    """A connection that waits while another process has locked the file, and says so."""

    patience_s = PATIENCE_S

    def __init__(self, database: str, *args: Any, **options: Any) -> None:
        super().__init__(database, *args, **options | {"timeout": min(self.patience_s, _ATTEMPT_S)})
        self._file = database

    def cursor(self, factory: Any = _Cursor) -> Any:
        """Return a cursor whose statements wait."""
        return super().cursor(factory)

    def execute(self, *statement: Any) -> Any:
        """Execute a statement as soon as the file is free."""
        return self.cursor().execute(*statement)

    def commit(self) -> None:
        """Commit as soon as the file is free."""
        self.waiting(super().commit)  # SQLite keeps a transaction whose end was refused

    def waiting(self, act: Callable[[], Answer]) -> Answer:
        """Return what `act` returns, which is tried again as long as the file is locked."""

        def passes(error: Exception) -> bool:
            # A snapshot that is out of date stays so, whoever waits.
            return is_locked(error) and getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_BUSY_SNAPSHOT

        return patient(
            act, passes, self.patience_s, f"{self._file} is locked by another process: waiting until it is free"
        )


class StudyConnection(PatientConnection):
    """A driver's connection to its study."""

    patience_s = math.inf


@event.listens_for(Engine, "do_connect")
def _waiting(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
    """Make a connection to SQLite a patient one, unless it has a class of its own."""
    if dialect.name == "sqlite":
        options.setdefault("factory", PatientConnection)


def wait_at_most(seconds: float) -> None:
    """Let this process wait so long for a file, its own study apart: a page has to answer, and shows what it had."""
    PatientConnection.patience_s = seconds


def is_locked(error: BaseException) -> bool:
    """Return True if a locked SQLite file caused `error`."""
    return any(code & 0xFF == sqlite3.SQLITE_BUSY for code in _codes(error))


def may_be_whole(error: BaseException, file: Path) -> bool:
    """Return True if `error` came of a lock, or of want of memory, disk or rights, and not of what `file` holds."""
    if not file.is_file():
        return False
    codes = [code for code in _codes(error) if code != sqlite3.SQLITE_IOERR_SHORT_READ]
    return any(isinstance(one, MemoryError | OSError) for one in _causes(error)) or any(
        code & 0xFF in _WHOLE for code in codes
    )


def _codes(error: BaseException) -> list[int]:
    codes = (getattr(one, "sqlite_errorcode", None) for one in _causes(error))
    return [code for code in codes if code is not None]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what caused it, which SQLAlchemy keeps as `orig` too."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__ or seen.__context__
