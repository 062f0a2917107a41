"""Locks of folders. The kernel releases a lock when its holder dies, whatever killed it.

A sweep has one driver, which holds `LOCK` in the sweep's folder. Writers of a small file share a lock of the folder
itself, which they hold for a moment and which leaves no file behind.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from edp.spec import UserError

LOCK = "lock"
"""The file in a sweep's folder that its driver holds."""
STOP = "stop"
"""The file in a sweep's folder by which another process asks its driver to stop."""

_PATIENCE_S = 0.2
"""Seconds to wait for the lock: longer than `is_held` holds it while it looks."""


@contextmanager
def driver_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of the sweep in `folder`; make the folder if it is missing.

    On NFS 4 (EFS among others) the lock holds across machines, and the server releases it when a dead machine's lease
    ends, after about 90 seconds. A file system without locks (some mounted buckets) admits every driver.

    Raises:
        UserError: if another process drives the sweep, or the folder cannot be written.
    """
    path = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise UserError(f"name = {name!r}: {error.strerror} ({path}); allowed: a folder that can be written") from None
    with ExitStack() as held:
        try:  # a soft lock would outlive a holder that was killed
            held.enter_context(FileLock(path, fallback_to_soft=False).acquire(_PATIENCE_S))
        except Timeout:
            holder = " ".join(path.read_text(errors="replace")[:200].split()) or "elsewhere"
            raise UserError(f"name = {name!r} is running ({holder}); allowed: a sweep that has stopped") from None
        except OSError:
            pass  # no locks on this file system
        if not folder.is_dir():  # `claimed` in another process has just removed it
            raise UserError(f"name = {name!r} was given up by another process just now; allowed: another try")
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        held.callback((folder / STOP).unlink, missing_ok=True)  # before the lock is released
        (folder / STOP).unlink(missing_ok=True)  # asked of a driver that is dead
        yield


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of a new folder. Remove the folder at the end of the block if nothing was kept in it.

    Raises:
        UserError: as `driver_lock`. If two processes claim a folder at once, the second is refused.
    """
    with driver_lock(folder, name):
        try:
            yield
        finally:
            if is_free(folder):
                for name in (LOCK, STOP):
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder` itself, so that its small files have one writer at a time.

    A file system without locks admits every writer.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_free(folder: Path) -> bool:
    """Return whether `folder` is missing, or holds at most the lock of a driver that died."""
    return not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK, STOP})


def is_held(folder: Path) -> bool:
    """Return whether a process holds the lock of `folder`; True also if the file system cannot tell.

    Unlike `FileLock`, it opens the file to read only, so it works in folders that cannot be written.
    """
    try:
        with (folder / LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # held, or a file system without locks
        return True
    return False
