"""Opening a tracking store: MLflow's client, and the experiment of a recipe.

Importing this module also sets how long MLflow waits, and what it logs.
"""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
from mlflow.entities import Experiment, LifecycleStage
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from edp.spec import UserError
from sweeps.store.lock import one_at_a_time
from sweeps.store.storage import sqlite_file
from sweeps.text.secrets import redacted
from sweeps.tracking.store import ask_server, check_there, refusal, remove_twin, wrong_store

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


def open_experiment(uri: str, name: str, artifacts: Path, *, new: bool) -> tuple[MlflowClient, str]:
    """Return a client of a tracking store, and the id of its experiment `name`.

    Args:
        uri: of the store, complete (`sweeps.tracking.store.settled_uri`).
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
