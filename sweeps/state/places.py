"""Where a SQLite tracking store is: kept relative to the storage folder that holds it, so that both move together."""

from __future__ import annotations

from pathlib import Path

from sweeps.formatting.names import sqlite_url

_SQLITE = "sqlite:///"


def absolute_store(uri: str) -> str:
    """`uri`, of a SQLite file by its whole path: who reads it later may stand in another folder."""
    file = _file(uri)
    if file is None or file.is_absolute() or str(file) in (".", ":memory:"):
        return uri
    return sqlite_url(file.resolve())


def relative_store(uri: str, storage: Path) -> str:
    """`uri`, of a SQLite file in `storage` by its path from there."""
    file = _file(uri)
    if file is None or not file.is_relative_to(storage):
        return uri
    return sqlite_url(file.relative_to(storage))


def store_here(uri: str, storage: Path) -> str:
    """What `relative_store` was given. An older record's whole path leads here too, where its file has moved here."""
    file = _file(uri)
    if file is None:
        return uri
    if not file.is_absolute():
        return sqlite_url(storage / file)
    moved = storage / file.name
    return sqlite_url(moved) if not file.exists() and moved.is_file() else uri


def _file(uri: str) -> Path | None:
    """The file of a SQLite store without options; None of any other."""
    if not uri.startswith(_SQLITE) or "?" in uri:
        return None
    from sqlalchemy.engine import make_url  # slow to import

    return Path(make_url(uri).database or "")
