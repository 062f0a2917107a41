"""Where sweeps live: a folder, or an object store's working folder on this machine."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_data_path

from edp.spec import UserError
from sweeps.formatting.names import as_path
from sweeps.formatting.shell import stands_for
from sweeps.state.bucket import check_address
from sweeps.state.mirror import Mirror

WORK = "EDP_WORK_DIR"
"""Variable of the environment: folder of the working folders."""

_EVERY_S = 30.0

_waiting: dict[Path, tuple[str, Callable[[str], None]]] = {}
"""Addresses of the working folders that nobody has looked into yet."""
_open: dict[Path, Mirror] = {}
"""What this process has opened, by working folder."""


def working_folder(address: str, say: Callable[[str], None]) -> Path:
    """The working folder of an object store, which is brought up to it when it is needed (`brought_down`).

    Args:
        say: told what takes its time, and what does not go up.

    Raises:
        UserError: for what is no store's address.
    """
    check_address(address)
    work = os.environ.get(WORK)
    if work is None and "RAY_ADDRESS" in os.environ:
        raise UserError(
            f"storage = {address!r} needs a working folder that all machines of the cluster see; "
            f"allowed: {WORK}=FOLDER in the environment"
        )
    place = as_path(work) if work is not None else user_data_path("edp-sweeps") / "storage"
    plain = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-")[:60]
    folder = place.resolve() / f"{plain}-{hashlib.sha256(address.rstrip('/').encode()).hexdigest()[:8]}"
    stands_for(folder, address.rstrip("/"))
    if folder not in _open:
        _waiting[folder] = address, say
    return folder


def brought_down(storage: Path) -> None:
    """Brings a working folder up to its object store, once; of other folders there is nothing to do.

    Raises:
        UserError: where the store does not answer, or the folder is ahead of it.
    """
    folder = storage.resolve()
    if folder not in _waiting:
        return
    try:
        mirror = Mirror(*_waiting[folder], folder)
    except OSError as error:
        raise UserError(f"{WORK} = {str(folder)!r}: {error.strerror}; allowed: a folder that can be written") from None
    mirror.pull()
    del _waiting[folder]
    _open[folder] = mirror


@contextmanager
def going_up(folder: Path) -> Iterator[None]:
    """What changes in a storage folder goes up while the block runs, and when it ends; elsewhere nobody drives it.

    Args:
        folder: of a sweep, or another one in the storage folder. Where that is no object store's, nothing is done.

    Raises:
        UserError: when another machine drives sweeps of the store, and where the last changes cannot go up.
    """
    mirror = _mirror_of(folder)
    if mirror is None:
        yield
        return
    name, done = folder.resolve().relative_to(mirror.folder).as_posix(), threading.Event()
    with mirror.driving(name):
        mirror.catch_up()  # another machine may have gone on since the folder came down
        thread = threading.Thread(target=_keep_up, args=(mirror, name, done), name="going_up", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            _end(thread, done)
            try:
                mirror.push()
            except UserError as error:  # what ended the block counts
                mirror.say(str(error))
            raise
        _end(thread, done)
        mirror.push()


def close_storages() -> None:
    """Sends up what commands have changed without driving a sweep, such as what was picked.

    Raises:
        UserError: where it cannot.
    """
    _waiting.clear()
    while _open:
        _, mirror = _open.popitem()
        if not mirror.is_driven_here() and mirror.has_changed():
            with mirror.driving("a command"):
                mirror.push()


def is_lent(storage: Path) -> bool:
    """Whether an object store's working folder is one that another machine drives sweeps of, and none here."""
    mirror = _mirror_of(storage)
    return mirror is not None and mirror.elsewhere is not None and not mirror.is_driven_here()


def is_driven_elsewhere(folder: Path) -> bool:
    """Whether another machine drives the sweep in `folder`, as of when its storage folder came down."""
    mirror = _mirror_of(folder)
    if mirror is None or mirror.elsewhere is None:
        return False
    return folder.resolve().relative_to(mirror.folder).as_posix() in mirror.elsewhere.sweeps


def _keep_up(mirror: Mirror, name: str, done: threading.Event) -> None:
    while not done.wait(_EVERY_S):
        try:
            mirror.renew(name)
            mirror.push()
        except Exception as error:  # tried again; the last time it counts
            mirror.say(f"not everything has gone up yet: {error}")


def _end(thread: threading.Thread, done: threading.Event) -> None:
    done.set()
    thread.join()


def _mirror_of(folder: Path) -> Mirror | None:
    whole = folder.resolve()
    return next((mirror for place, mirror in _open.items() if whole.is_relative_to(place)), None)
