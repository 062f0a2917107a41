"""A plugin of MLflow that finds artifacts in a storage folder that was moved together with its SQLite store.

The store holds the absolute path of every run's artifacts, and no call of MLflow changes it. So a path that leads
nowhere any more is resolved again each time MLflow opens it. `pyproject.toml` registers the plugin for `file:`
addresses, so that MLflow's own commands (`mlflow ui`, `mlflow models serve`) use it too.
"""

from __future__ import annotations

from pathlib import Path

import mlflow
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from sqlalchemy.engine import make_url

ARTIFACTS = "mlflow-artifacts"
"""The folder beside `mlflow.db` that holds the artifacts."""


class MovedArtifacts(LocalArtifactRepository):
    """MLflow's artifacts in a local folder, wherever that folder is now."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        self._artifact_dir = current_place(self._artifact_dir, tracking_uri or mlflow.get_tracking_uri())


def current_place(folder: str, tracking_uri: str) -> str:
    """Return where `folder` is now.

    It has moved if its `mlflow-artifacts` folder is gone and the tracking store is a SQLite file: then it is below the
    folder of that name beside the file.
    """
    before, _, below = folder.rpartition(f"/{ARTIFACTS}/")
    if not before or Path(before, ARTIFACTS).exists() or not tracking_uri.startswith("sqlite:///"):
        return folder
    store = make_url(tracking_uri).database
    return str(Path(store).resolve().parent / ARTIFACTS / below) if store else folder
