"""The end of MLflow runs whose process has died.

Each run has tags with its storage folder and the lock that its process held. If the lock is free, that process has
died. If this process holds the lock, its earlier holder has ended.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from sweeps.store.lock import held_lock, is_held
from trainables.records.files import atomic_write

_STORAGE, _LOCK, _PROCESS = "edp_sweep.storage", "edp_sweep.lock", "edp_sweep.process"
_THIS_PROCESS = uuid.uuid4().hex


def owner_tags(storage: Path) -> dict[str, str]:
    """Return the tags of a run that this process starts; {} if it holds no lock in `storage`."""
    folder = held_lock()
    if folder is None or not folder.is_relative_to(storage.resolve()):
        return {}
    lock = str(folder.relative_to(storage.resolve()))
    return {_STORAGE: _identity(storage), _LOCK: lock, _PROCESS: _THIS_PROCESS}


def end_dead_runs(client: MlflowClient, storage: Path) -> list[str]:
    """End, as KILLED, the running runs of dead processes of this storage folder; return the runs' ids."""
    if not _file(storage).is_file():
        return []  # no process here has started a run
    wanted = f"attributes.status = 'RUNNING' and tags.`{_STORAGE}` = '{_identity(storage)}'"
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    found: list[Run] = list(client.search_runs(experiments, wanted, max_results=1000)) if experiments else []
    dead = [run.info.run_id for run in found if _is_dead(run.data.tags, storage)]
    for run_id in dead:
        client.set_tag(run_id, "state", "stopped")
        client.set_terminated(run_id, "KILLED")
    return dead


def _is_dead(tags: dict[str, str], storage: Path) -> bool:
    folder = storage.resolve() / tags.get(_LOCK, ".")
    if folder == held_lock():  # this process holds it, so no other holder is alive
        return tags.get(_PROCESS) != _THIS_PROCESS
    return not is_held(folder)


def _file(storage: Path) -> Path:
    return storage / "logs" / "storage-id"


def _identity(storage: Path) -> str:
    """Return the storage folder's id: a folder of the same path on another disk may use the same store."""
    path = _file(storage)
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(uuid.uuid4().hex)
    return path.read_text(encoding="ascii", errors="replace").strip()[:32].replace("'", "")
