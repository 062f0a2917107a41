"""A storage folder and the URI of its tracking store.

The URI of a SQLite store in the storage folder is kept relative to the folder, so that both move together.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from edp.spec import UserError
from sweeps.store.lock import is_free
from sweeps.text.paths import check_name, sqlite_url
from sweeps.text.secrets import redacted
from sweeps.text.terminal import command_line
from trainables.records.files import own_files, share


class Place:
    """The folder `storage/name` of a sweep or a training, and the folders that it shares with the others.

    Args:
        storage: the storage folder.
        name: of the sweep or training.

    Raises:
        UserError: if `name` cannot be a name, or is that of a folder of the storage's own.
    """

    def __init__(self, storage: Path, name: str) -> None:
        self.name = check_name("name", name)
        if name in ("cache", "encoders", "logs", "mlflow-artifacts"):
            raise UserError(f"name = {name!r} is a folder of the storage's own; allowed: another --name")
        self.storage = storage.resolve()
        self.folder = self.storage / name
        self.cache, self.artifacts = self.storage / "cache", self.storage / "mlflow-artifacts"
        self.log = self.storage / "logs" / f"{name}.log"

    @classmethod
    def new(cls, storage: Path, name: str) -> Self:
        """Return a place that is free. Only the storage folder is made.

        Raises:
            UserError: if the name is taken or cannot be a folder's.
        """
        place = cls(storage, name)
        check_storage(storage)
        if not is_free(place.folder):
            way = command_line("resume", name, storage=storage)
            raise UserError(
                f"name = {name!r}: {place.folder} exists; choose another --name, or, with --trials N for N trials "
                f"more, go on with: {way}"
            )
        return place


def check_storage(storage: Path) -> None:
    """Make a storage folder if it is missing, for its owner alone, and let this process make files as `own_files`.

    Raises:
        UserError: if it cannot be made.
    """
    own_files(storage)
    try:
        (storage / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"storage = {str(storage)!r}: {error.strerror}; allowed: a folder that can be written"
        ) from None


def share_storage(storage: Path) -> None:
    """Make a storage folder that its group shares, for a cluster whose nodes work under several users.

    Raises:
        UserError: if it cannot be made, or is another user's.
    """
    try:
        share(storage)
    except OSError as error:
        raise UserError(
            f"--shared-with-group: {storage}: {error.strerror}; allowed: a storage folder of one's own"
        ) from None


def chosen_tracking_uri(given: str | None, storage: Path) -> str:
    """Return MLflow's store: the one that is given, else that of `MLFLOW_TRACKING_URI`, else the storage folder's."""
    return given or os.environ.get("MLFLOW_TRACKING_URI") or default_tracking_uri(storage)


def default_tracking_uri(storage: Path) -> str:
    """Return the URI of the SQLite store in a storage folder."""
    return sqlite_url((storage / "mlflow.db").resolve())


def absolute_store(uri: str) -> str:
    """Return `uri` with a SQLite file's absolute path: a later reader may work in another folder."""
    file = _file(uri)
    if file is None or file.is_absolute() or str(file) == ":memory:":
        return uri
    return sqlite_url(file.resolve())


def relative_store(uri: str, storage: Path) -> str:
    """Return `uri` with the path of a SQLite file in `storage` relative to `storage`."""
    file = _file(uri)
    if file is None or not file.is_relative_to(storage):
        return uri
    return sqlite_url(file.relative_to(storage))


def store_here(uri: str, storage: Path) -> str:
    """Return the absolute URI of a store that `relative_store` made relative, below `storage` as it is now."""
    file = _file(uri)
    return uri if file is None or file.is_absolute() else sqlite_url(storage / file)


def train_line(config: str | Path, *words: str, storage: Path, tracking_uri: str) -> str:
    """Return `edp-sweep train CONFIG WORDS…` as a next step that tracks in the store at `tracking_uri`.

    `train` reads no sweep, so the command line must name a store that is not the default.
    """
    default = absolute_store(chosen_tracking_uri(None, storage))
    named = tracking_uri if redacted(default) != redacted(absolute_store(tracking_uri)) else None
    return command_line("train", config, *words, storage=storage, tracking_uri=named)


def _file(uri: str) -> Path | None:
    """Return the file of a SQLite store whose URI has no options, which a new URI would lose; else None."""
    return sqlite_file(uri) if uri.startswith("sqlite:///") and "?" not in uri else None


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for another database or address."""
    from sqlalchemy.engine import make_url  # slow to import
    from sqlalchemy.exc import ArgumentError

    try:
        place = make_url(url)
    except ArgumentError:
        return None
    return Path(place.database) if place.get_backend_name() == "sqlite" and place.database else None
