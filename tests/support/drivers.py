"""`edp-sweep` in a process of its own, and the processes below one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import wait_for


class Driver:
    """`edp-sweep WORDS…` in a process of its own.

    Args:
        address: of the Ray cluster that it joins; None: it starts one.
    """

    def __init__(self, folder: Path, address: str | None, *words: str) -> None:
        self.errors = folder / f"stderr-{time.monotonic_ns()}.txt"
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        environment |= {"RAY_ADDRESS": address} if address else {}
        with self.errors.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweeps.commands", *words],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.errors.read_text()

    def wait_until(self, line: str) -> None:
        wait_for(lambda: line in self.said() or self.process.poll() is not None)
        assert line in self.said(), self.said()

    def end(self) -> int:
        return self.process.wait(timeout=400)

    def kill_everything(self) -> None:
        """What the driver has left behind is its own process group."""
        for pid in {self.process.pid, *below(self.process.pid)}:
            kill(pid)


def programs(pid: int, program: str) -> list[int]:
    """Ids of the processes below `pid` whose program's name holds `program`."""
    return [one for one in below(pid) if program in command_of(one).partition(" ")[0]]


def below(pid: int) -> list[int]:
    """Ids of its children, theirs, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = [], [pid]
    while left:
        mine = parents.get(left.pop(), [])
        found += mine
        left += mine
    return found


def command_of(pid: int) -> str:
    """Its command line; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def kill(pid: int) -> None:
    """At once; one that has ended by itself is none to kill."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
