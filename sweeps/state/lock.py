"""One driver a sweep: a lock that the kernel lets go when its holder dies, whatever killed it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from edp.spec import UserError
from sweeps.state.flock import LOCK, is_locked
from sweeps.state.storage import going_up, is_driven_elsewhere

_PATIENCE_S = 0.2
"""Whoever only looks at a lock holds it for a moment."""

_held: list[Path] = []
"""Folders whose locks this process holds, the last one last."""


@contextmanager
def driver_lock(folder: Path, name: str) -> Iterator[None]:
    """Holds the lock of the sweep in `folder`, which is made where it is not there.

    On NFS 4 (EFS among others) the lock holds across machines, and the server lets it go when a dead machine's lease
    ends, after about 90 seconds. Storage without locks at all (some object stores) lets everybody in.

    Raises:
        UserError: when another process drives the sweep, or the folder cannot be written; of an object store, when
            another machine drives its sweeps.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UserError(f"name = {name!r}: {error.strerror} ({path}); allowed: a folder that can be written") from None
    with ExitStack() as held:
        try:  # the other kind of lock outlives a holder that was killed
            held.enter_context(FileLock(path, fallback_to_soft=False).acquire(_PATIENCE_S))
        except Timeout:
            holder = " ".join(path.read_text(errors="replace")[:200].split()) or "elsewhere"
            raise UserError(f"name = {name!r} is running ({holder}); allowed: a sweep that has stopped") from None
        except OSError:
            pass  # no locks on this file system
        if not folder.is_dir():
            raise UserError(f"name = {name!r} was given up by another process just now; allowed: another try")
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        held.enter_context(going_up(folder))
        _held.append(folder)
        try:
            yield
        finally:
            _held.remove(folder)


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[None]:
    """As `driver_lock`, of a folder that is new: it goes again with the block where nothing was kept in it.

    Raises:
        UserError: as `driver_lock`; of two that claim it at once the second is refused.
    """
    free = is_free(folder)
    with driver_lock(folder, name):
        if free and not is_free(folder):  # it came down from an object store
            raise UserError(f"name = {name!r} was taken elsewhere just now; allowed: another name")
        try:
            yield
        finally:
            if is_free(folder):
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()


def is_free(folder: Path) -> bool:
    """Whether nothing is kept in `folder`: it is not there, or holds no more than the lock of somebody who died."""
    return not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK})


def held_lock() -> Path | None:
    """The folder whose lock this process took last, and holds."""
    return _held[-1] if _held else None


def is_held(folder: Path) -> bool:
    """Whether somebody holds the lock of `folder`, or nobody can tell; of an object store, on another machine too."""
    return is_driven_elsewhere(folder) or is_locked(folder / LOCK)
