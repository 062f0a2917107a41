"""Ends whatever a test session has started, once the session is gone, whatever ended it: `kill -9` runs no fixture.

Processes are known by a variable of the environment, which they inherit whatever session or parent they have.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

MARK = "EDP_TEST_SESSION"
_GRACE_S = 5.0


def start() -> None:
    """Marks this process for those that it starts from now on, and has them ended after it."""
    own = {name: value for name, value in os.environ.items() if name != MARK}
    os.environ[MARK] = uuid.uuid4().hex
    words = [sys.executable, __file__, str(os.getpid()), os.environ[MARK]]
    nothing = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    os.posix_spawn(sys.executable, words, own, file_actions=nothing)  # nobody waits for it


def marked(mark: str) -> set[int]:
    """The processes that have `mark`. One that has ended, and is not waited for, has no environment."""
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has just ended, or is another user's
            if f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0"):
                found.add(int(environ.parent.name))
    return found


def main(parent: int, mark: str) -> None:
    os.setsid()  # out of reach of Ctrl-C
    while os.getppid() == parent:
        time.sleep(1)
    deadline = time.monotonic() + _GRACE_S  # those that end by themselves, and clean up
    while time.monotonic() < deadline and marked(mark):
        time.sleep(0.5)
    while left := marked(mark):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
