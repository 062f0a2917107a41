"""One driver a sweep: a lock that the kernel lets go when its holder dies, whatever killed it."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edp.spec import UserError


@contextmanager
def driver_lock(folder: Path, name: str) -> Iterator[None]:
    """Holds the lock of the sweep in `folder`.

    On NFS 4 (EFS among others) the lock holds across machines, and the server lets it go when a dead machine's lease
    ends, after about 90 seconds. Storage without locks at all (some object stores) lets everybody in.

    Raises:
        UserError: when another process drives the sweep.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"name = {name!r} is running ({file.read().strip() or 'elsewhere'}); allowed: a sweep that has stopped"
            ) from None
        except OSError:
            pass  # no locks on this file system
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
