"""A look at a lock, which takes nothing and writes nothing."""

from __future__ import annotations

import fcntl
from pathlib import Path

LOCK = "lock"
"""The file in a sweep's folder that its driver holds."""


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
