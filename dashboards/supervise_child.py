"""Runs a command for as long as the process that started this holds the other end of its standard input:

    python -m dashboards.supervise_child COMMAND…

A server that is started beside another process would outlive its `kill -9`. The kernel closes that process' end of the
pipe, whatever ended it; this one then ends the command, and all that the command has started in its process group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

_GRACE_S = 3.0


def main() -> int:
    """Run the command, and return its exit code where it ended by itself."""
    # Its own group hears of both, and would leave it behind.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_as_usual)
    threading.Thread(target=_end_with_input, daemon=True).start()
    return child.wait()


def _as_usual() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _end_with_input() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("to be started as the leader of a process group: it ends all of it")
    sys.exit(main())
