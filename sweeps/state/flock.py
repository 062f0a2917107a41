"""The kernel's locks that leave no file behind: a look at a driver's, and one that is held for a moment."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"
"""The file in a sweep's folder that its driver holds."""


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits for its turn among all, here and in other processes, who change a file of `folder`, and holds it.

    The lock is that of the folder itself. A file system without locks lets everybody in.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock on a file, or nobody can tell.

    Also where nothing may be written, which `FileLock` would try: its lock is the kernel's own.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # held, or a file system without locks
        return True
    return False
