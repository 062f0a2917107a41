"""Run a command until it ends, or until the process at the other end of standard input ends.

    python -m dashboards.supervise_child COMMAND…

A server in a child process would survive a `kill -9` of its parent. The kernel closes the parent's end of the pipe,
whatever ended it. This process then ends the command, and everything in the command's process group.
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
    """Run the command, and return its exit code if it ends by itself."""
    # Signals to the group must reach the command, but not end this process before the command has ended.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, preexec_fn=_as_usual)
    threading.Thread(target=_end_with_input, daemon=True).start()
    return child.wait()


def _as_usual() -> None:
    """Restore the default handlers, which the command would otherwise inherit as ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def _end_with_input() -> None:
    """Wait for the end of standard input, and end the process group."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(_GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("supervise_child ends its whole process group; start it as the leader of a group of its own")
    sys.exit(main())
