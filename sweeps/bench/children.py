"""Processes of a benchmark do not outlive the one that started them, however that one ends."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """Ends this process, exit code 1, once the one that spawned it is gone. A signal leaves it no time to say so."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end with parent", daemon=True).start()
