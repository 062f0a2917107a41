"""An MLflow plugin that finds artifacts in a storage folder that was moved or copied together with its SQLite store.

The store holds the absolute path of every run's artifacts, and no call of MLflow changes it. The plugin therefore
resolves the path each time MLflow opens it. `pyproject.toml` registers the plugin for `file:` addresses, so that
MLflow's own commands (`mlflow ui`, `mlflow models serve`) use it too.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlflow
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from sweeps.store.storage import sqlite_file

ARTIFACTS = "mlflow-artifacts"
STORE = "mlflow.db"
"""The default names of the folder of artifacts and of the store, which are beside each other."""


class MovedArtifacts(LocalArtifactRepository):
    """MLflow's artifacts in a local folder, wherever that folder is now."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        place = current_place(artifact_uri, tracking_uri or mlflow.get_tracking_uri())
        super().__init__(place, tracking_uri, registry_uri)


def current_place(artifact_uri: str, tracking_uri: str) -> str:
    """Return the URI where artifacts are now: in the `mlflow-artifacts` folder beside the store, if it was moved there.

    The store has moved if the folder in the URI is gone. It is a copy if the storage folder in the URI has a SQLite
    store of its own for the same experiment: what the copy's runs write must not get into the original.
    """
    before, _, below = artifact_uri.rpartition(f"/{ARTIFACTS}/")
    store = sqlite_file(tracking_uri)
    if not before or store is None:
        return artifact_uri
    storage, here = Path(unquote(urlsplit(before).path)), store.resolve().parent
    experiment = f"{before}/{ARTIFACTS}/{below.partition('/')[0]}"
    if storage.resolve() == here or ((storage / ARTIFACTS).exists() and not _holds(storage / STORE, experiment)):
        return artifact_uri
    return f"{(here / ARTIFACTS).as_uri()}/{below}"


def _holds(store: Path, experiment: str) -> bool:
    """Return True if a SQLite store has an experiment whose artifacts are at this URI."""
    if not store.is_file():
        return False
    found = "SELECT 1 FROM experiments WHERE artifact_location = ?"
    try:
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True, timeout=30)) as opened:
            return opened.execute(found, (experiment,)).fetchone() is not None
    except sqlite3.Error:  # not a store of MLflow's
        return False
