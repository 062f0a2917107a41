"""An MLflow plugin that finds artifacts in a storage folder that was moved together with its SQLite store.

The store holds the absolute path of every run's artifacts, and no call of MLflow changes it. The plugin therefore
resolves a path that no longer exists each time MLflow opens it. `pyproject.toml` registers the plugin for `file:`
addresses, so that MLflow's own commands (`mlflow ui`, `mlflow models serve`) use it too.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlflow
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository

from sweeps.store.storage import sqlite_file

ARTIFACTS = "mlflow-artifacts"
"""The folder beside `mlflow.db` that holds the artifacts."""


class MovedArtifacts(LocalArtifactRepository):
    """MLflow's artifacts in a local folder, wherever that folder is now."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        place = current_place(artifact_uri, tracking_uri or mlflow.get_tracking_uri())
        super().__init__(place, tracking_uri, registry_uri)


def current_place(artifact_uri: str, tracking_uri: str) -> str:
    """Return the URI where artifacts are now.

    They have moved if their `mlflow-artifacts` folder is gone and the tracking store is a SQLite file. They are then in
    the folder of that name beside the file.
    """
    before, _, below = artifact_uri.rpartition(f"/{ARTIFACTS}/")
    store = sqlite_file(tracking_uri)
    if not before or store is None or Path(unquote(urlsplit(before).path), ARTIFACTS).exists():
        return artifact_uri
    return f"{(store.resolve().parent / ARTIFACTS).as_uri()}/{below}"
