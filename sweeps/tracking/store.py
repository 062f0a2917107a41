"""A tracking store: its checks, which write nothing to it, MLflow's client, and the experiment of a recipe.

Importing this module also sets how long MLflow waits, and what it logs.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from contextlib import nullcontext, suppress
from pathlib import Path

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
from mlflow.entities import Experiment, LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from edp.spec import UserError
from sweeps.store.lock import one_at_a_time
from sweeps.store.sqlite_locks import is_locked
from sweeps.store.storage import absolute_store, sqlite_file
from sweeps.text.errors import missing_driver
from sweeps.text.secrets import HIDDEN, redacted

# MLflow would print the address of each run on a server to standard output, before the document of --json.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
for _chatty in ("mlflow", "alembic"):  # they log a line for each of dozens of migrations of a new store
    logging.getLogger(_chatty).setLevel(logging.WARNING)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # tracebacks of errors that we report in a line

# By default MLflow waits for minutes in each call. `sweeps.engine.finish` resends what the store did not take.
for _name, _value in (("MAX_RETRIES", "1"), ("TIMEOUT", "10"), ("BACKOFF_FACTOR", "1")):
    os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{_name}", _value)

TROUBLE = (MlflowException, SQLAlchemyError, requests.RequestException, OSError)
"""Errors of a store that does not answer, or refuses."""

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


def open_experiment(uri: str, name: str, artifacts: Path, *, new: bool) -> tuple[MlflowClient, str]:
    """Return a client of a tracking store, and the id of its experiment `name`.

    Args:
        uri: of the store, complete (`settled_uri`).
        artifacts: folder for the artifacts of a new experiment in a database store; a server has its own.
        new: whether to create a store and an experiment that are missing; if False, raise.

    Raises:
        UserError: if the store cannot be opened, or its experiment was deleted.
    """
    if not new:
        check_there(uri)
    elif (file := sqlite_file(uri)) is not None and file.is_absolute() and os.access(file.parent, os.W_OK):
        file.touch()  # SQLite itself makes files that a shared folder's group cannot write
    try:
        if is_server(uri):
            # MLflow itself would retry for minutes before it reports a server that does not answer.
            ask_server(uri)
        # MLflow makes its tables in steps that a second process at the same time would break.
        with one_at_a_time(artifacts.parent) if new and artifacts.parent.is_dir() else nullcontext():
            client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            found = client.get_experiment_by_name(name)
            remove_twin(uri)
            if found is None and not new:
                raise wrong_store(uri, f"holds no experiment {name!r}")
            found = found or _created(client, uri, name, artifacts)
        if found.lifecycle_stage == LifecycleStage.DELETED:
            raise UserError(
                f"tracking-uri = {redacted(uri)!r}: its experiment {name!r} was deleted; allowed: another "
                f"store, or to restore it: MLFLOW_TRACKING_URI={shlex.quote(redacted(uri))} mlflow experiments "
                f"restore --experiment-id {found.experiment_id}"
            )
    except UserError:
        raise
    except Exception as error:  # of MLflow, its plugins, or a driver
        raise refusal(uri, error) from None
    return client, str(found.experiment_id)


def is_server(uri: str) -> bool:
    """Return True if a store is a server, and not a database."""
    return uri.startswith(("http://", "https://"))


def _created(client: MlflowClient, uri: str, name: str, artifacts: Path) -> Experiment:
    place = None if is_server(uri) else (artifacts / name).resolve().as_uri()
    tags = {
        "mlflow.experimentKind": "custom_model_development",
        # MLflow's charts show this metric first.
        "mlflow.experiment.primaryMetric.name": "valid_ser",
        "mlflow.experiment.primaryMetric.greaterIsBetter": "False",
    }
    try:
        return client.get_experiment(client.create_experiment(name, place, tags))
    except MlflowException:
        # On a server, another process may have made it meanwhile.
        if (made := client.get_experiment_by_name(name)) is None:
            raise
        return made
