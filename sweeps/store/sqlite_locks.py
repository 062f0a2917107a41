"""SQLite files that another process has locked: how long to wait for them, and what an error says of a file.

SQLAlchemy gives up after five seconds, and Optuna and MLflow then raise errors that name another cause. Importing this
module makes all SQLAlchemy connections of the process wait, so MLflow's too, which takes no options for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

PATIENCE_S = 600.0
"""Seconds that a driver waits for its study: its trials would be lost."""
_others_wait_s = 60.0

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


@event.listens_for(Engine, "do_connect")
def _waiting(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
    """Make a connection to SQLite wait, unless it says for how long."""
    if dialect.name == "sqlite":
        options.setdefault("timeout", _others_wait_s)


def wait_at_most(seconds: float) -> None:
    """Let this process wait so long for a file, its own study apart: a page has to answer, and shows what it had."""
    global _others_wait_s
    _others_wait_s = seconds


def is_locked(error: BaseException) -> bool:
    """Return True if a locked SQLite file caused `error`."""
    return any(code & 0xFF == sqlite3.SQLITE_BUSY for code in _codes(error))


def may_be_whole(error: BaseException, file: Path) -> bool:
    """Return True if `error` came of a lock, or of want of memory, disk or rights, and not of what `file` holds."""
    if not file.is_file():
        return False
    codes = [code for code in _codes(error) if code != sqlite3.SQLITE_IOERR_SHORT_READ]
    return any(isinstance(one, MemoryError | OSError) for one in causes(error)) or any(
        code & 0xFF in _WHOLE for code in codes
    )


def _codes(error: BaseException) -> list[int]:
    codes = (getattr(one, "sqlite_errorcode", None) for one in causes(error))
    return [code for code in codes if code is not None]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and what caused it, which SQLAlchemy keeps as `orig` too."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__ or seen.__context__
