"""Threads that wait for a worker group."""

from __future__ import annotations

import threading

GROUP_THREAD = "worker-group-"
"""What the name of such a thread begins with."""


def still_waits() -> bool:
    """Whether a thread still waits for a worker group, which Ctrl-C may have left in the middle of an epoch.

    Ray must not be shut down then, and this process must leave by `os._exit`: Ray ends a process whose thread it finds
    waiting with exit code 1. Its processes go when this one has gone.
    """
    return any(thread.name.startswith(GROUP_THREAD) for thread in threading.enumerate())
