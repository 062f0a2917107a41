"""Checks of a tracking store that run before anything is created and write nothing to it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from mlflow.exceptions import MlflowException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from edp.spec import UserError
from sweeps.store.sqlite_locks import is_locked
from sweeps.store.storage import absolute_store, sqlite_file
from sweeps.text.errors import missing_driver
from sweeps.text.secrets import HIDDEN, redacted

_OLD = re.compile(r"[012]\.[\w.]{1,30}")
"""The versions of MLflow that have no LoggedModels."""


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
                f"tracking-uri = {stored!r}: the part shown as *** is not kept; give the whole URI with "
                "--tracking-uri or in MLFLOW_TRACKING_URI"
            )
    return absolute_store(uri)


def check_store(uri: str) -> str:
    """Return the URI with its password; raise if the store cannot be opened.

    Raises:
        UserError: as `Tracker`, but within seconds.
    """
    uri = settled_uri(None, uri)
    try:
        if ":" not in uri and uri != "databricks":  # MLflow would make a folder of this name
            raise ValueError("it is a path")
        if uri.startswith(("http://", "https://")):
            ask_server(uri)
        else:
            _check_database(uri)
    except UserError:
        raise
    except Exception as error:  # a driver's own
        raise refusal(uri, error) from None
    return uri


def ask_server(uri: str) -> None:
    """Raise if a server does not answer within seconds, or is too old; MLflow's variables for TLS and passwords hold.

    Raises:
        UserError: with the server's version.
        Exception: as `requests` raises it.
    """
    ask = {"max_retries": 0, "timeout": 10, "raise_on_status": False}
    try:
        answer = http_request(get_default_host_creds(uri), "/version", "GET", **ask)
    except MlflowException as error:  # its message begins with the whole URI
        raise error.__context__ or error from None
    if answer.ok and (found := _OLD.fullmatch(answer.text.strip())):  # other servers than MLflow's have no such page
        raise UserError(
            f"tracking-uri = {redacted(uri)!r}: MLflow {found[0]} answers there, which has no LoggedModels; "
            "allowed: a server of MLflow 3, or a file (sqlite:///FILE)"
        )


def _check_database(uri: str) -> None:
    try:
        place = make_url(uri)
    except ArgumentError:  # not a database: `Tracker` lets MLflow judge it
        return
    if place.get_backend_name() == "sqlite":
        file = Path(place.database or "")
        if not place.database or place.database == ":memory:":
            raise ValueError("a store in memory ends with its process")
        if not file.exists():
            nearest = next(folder for folder in file.absolute().parents if folder.exists())
            if not nearest.is_dir() or not os.access(nearest, os.W_OK):  # MLflow makes the missing folders
                raise PermissionError(f"{nearest} is no folder that can be written")
            return
        if not os.access(file, os.W_OK):
            raise PermissionError(f"{file} cannot be written")
    engine = create_engine(place)
    try:
        inspect(engine).get_table_names()
    finally:
        engine.dispose()


def remove_twin(uri: str) -> None:
    """Remove the empty folder that MLflow makes for a SQLite store from its URL as it stands, if a letter is quoted."""
    file, made = sqlite_file(uri), Path(uri.removeprefix("sqlite:///")).parent
    if file is not None and made != file.parent and "?" not in uri:
        with suppress(OSError):  # it is not empty, or not there
            os.removedirs(made)


def check_there(uri: str) -> None:
    """Raise if a SQLite store is missing: MLflow would create an empty one and find nothing in it.

    Raises:
        UserError: naming the file.
    """
    file = sqlite_file(uri)
    if file is not None and not file.exists():
        raise wrong_store(uri, "is not there")


def wrong_store(uri: str, problem: str) -> UserError:
    """Return the error that the store at `uri` is not the one that holds the runs."""
    return UserError(
        f"tracking-uri = {redacted(uri)!r} {problem}; allowed: the store that holds the runs (--tracking-uri, "
        "if it has moved)"
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
    if is_locked(error):
        return "another process has locked it"
    return redacted(" ".join(str(error).split()) or type(error).__name__, uri)[:200]
