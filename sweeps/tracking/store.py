"""Check a tracking store before anything is made, without writing to it."""

from __future__ import annotations

import os
from pathlib import Path

import requests
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from edp.spec import UserError
from sweeps.store.storage import absolute_store
from sweeps.text.errors import missing_driver
from sweeps.text.secrets import HIDDEN, redacted


def settled_uri(given: str | None, stored: str) -> str:
    """Return the store to use: `given`, else `stored`, or MLFLOW_TRACKING_URI if that lacks its password.

    Raises:
        UserError: if no place has the password.
    """
    uri = given or stored
    if HIDDEN in uri:
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not uri:
            raise UserError(
                f"tracking-uri = {stored!r}: what *** stands for is not kept; give the whole with --tracking-uri, "
                "or in MLFLOW_TRACKING_URI"
            )
    return absolute_store(uri)


def check_store(uri: str) -> str:
    """Return the URI with its password; raise if the store cannot be opened.

    Raises:
        UserError: as `Tracker`, but within seconds.
    """
    uri = settled_uri(None, uri)
    try:
        if ":" not in uri and uri != "databricks":  # MLflow would make a folder of this name, wherever one is
            raise ValueError("it is a path")
        if uri.startswith(("http://", "https://")):
            requests.get(uri, timeout=10)
        elif (place := _database(uri)) is not None:
            _check_database(place)
    except UserError:
        raise
    except Exception as error:  # a driver's own
        raise refusal(uri, error) from None
    return uri


def _database(uri: str) -> URL | None:
    try:
        return make_url(uri)
    except ArgumentError:  # MLflow has others, which `Tracker` asks it for
        return None


def _check_database(place: URL) -> None:
    if place.get_backend_name() == "sqlite":
        file = Path(place.database or "")
        if not place.database or place.database == ":memory:":
            raise ValueError("a store in memory is gone with its process")
        if not file.exists():
            _check_folder(file)
            return
        if not os.access(file, os.W_OK):
            raise PermissionError(f"{file} cannot be written")
    engine = create_engine(place)
    try:
        inspect(engine).get_table_names()
    finally:
        engine.dispose()


def _check_folder(file: Path) -> None:
    """Raise if MLflow could not make the missing folders of a new store."""
    nearest = next(folder for folder in file.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise PermissionError(f"{nearest} is no folder that can be written")


def check_there(uri: str) -> None:
    """Raise if a SQLite store is missing: MLflow would make an empty one, and find nothing in it.

    Raises:
        UserError: naming the file.
    """
    try:
        place = make_url(uri)
    except ArgumentError:  # MLflow has others, and says so itself
        return
    if place.get_backend_name() == "sqlite" and place.database and not Path(place.database).exists():
        raise UserError(
            f"tracking-uri = {redacted(uri)!r} is not there; allowed: the store that holds the runs (--tracking-uri, "
            "where it has moved)"
        )


def refusal(uri: str, error: Exception) -> UserError:
    """Return the error that the store at `uri` cannot be opened, without its password."""
    if isinstance(error, ImportError):
        return UserError(f"tracking-uri = {redacted(uri)!r} cannot be opened: {missing_driver(error)}")
    return UserError(
        f"tracking-uri = {redacted(uri)!r} cannot be opened; allowed: sqlite:///FILE, a database URL, or "
        f"http(s)://SERVER ({reason_of(uri, error)})"
    )


def reason_of(uri: str, error: Exception) -> str:
    """Return the message of the store at `uri` or its driver, in one line without secrets."""
    return redacted(" ".join(str(error).split()) or type(error).__name__, uri)[:200]
