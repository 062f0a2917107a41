"""A tracking store looked at before anything is made: nothing is written to it, and no experiment is begun in it."""

from __future__ import annotations

import os
from pathlib import Path

import requests
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from edp.spec import UserError
from sweeps.tracking.tracker import refusal, settled_uri


def check_store(uri: str) -> str:
    """Refuses a store that cannot be opened; returns the URI with its password.

    Raises:
        UserError: as `Tracker`, in seconds.
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
    """Where MLflow makes the folders that are missing."""
    nearest = next(folder for folder in file.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise PermissionError(f"{nearest} is no folder that can be written")
