"""A storage folder that was moved with its MLflow store: the store holds whole paths of artifacts, which move along.

MLflow has no call for it. Its tables are as of MLflow 3; a column that another version lacks is left out.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PLACES = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
    ("logged_models", "artifact_location"),
)


def follow(store: Path, artifacts: Path) -> bool:
    """Leads artifacts of the SQLite store beside `artifacts` there, where the folder that they name is gone.

    Returns:
        Whether anything had to be changed.
    """
    if not store.is_file() or store.resolve().parent != artifacts.resolve().parent:
        return False
    new = artifacts.resolve().as_uri()
    with closing(sqlite3.connect(store, timeout=10)) as database, database:
        known = {(table, column) for table, column in _PLACES if column in _columns(database, table)}
        gone = {old for table, column in known for old in _roots(database, table, column, artifacts.name) if old != new}
        gone = {old for old in gone if not Path(unquote(urlsplit(old).path)).exists()}
        for old in gone:
            for table, column in known:
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                    (new, len(old) + 1, len(old) + 1, f"{old}/"),
                )
    return bool(gone)


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}


def _roots(database: sqlite3.Connection, table: str, column: str, name: str) -> set[str]:
    """The folders of this name that a column's paths begin with."""
    found = database.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} LIKE 'file:///%'")
    return {before + f"/{name}" for (path,) in found if (before := path.partition(f"/{name}/")[0]) != path}
