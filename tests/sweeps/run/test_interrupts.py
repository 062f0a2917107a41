"""Ctrl-C comes at any moment, also in the middle of a line that is printed."""

from __future__ import annotations

import io
import signal
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from sweeps.run.interrupt import Interrupts
from sweeps.run.progress import Progress
from tests.support.waiting import wait_for


class _CtrlC(io.RawIOBase):
    """A terminal whose first line is interrupted while it is being written."""

    def __init__(self) -> None:
        self.written, self.interrupts = b"", 1

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.interrupts:
            self.interrupts -= 1
            signal.raise_signal(signal.SIGINT)
        self.written += bytes(data)
        return len(data)


def test_a_line_that_is_being_printed_is_printed_and_the_jobs_are_stopped() -> None:
    """What printed from the handler raised a RuntimeError in whatever was printing: a trial failed of it."""
    raw, sent = _CtrlC(), []
    terminal = io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=True)
    progress = Progress(Console(file=terminal, width=200))
    interrupts = Interrupts(progress.say, "go on with: edp-sweep resume s")
    with interrupts.catching(), interrupts.jobs(SimpleNamespace(send=SimpleNamespace(remote=sent.append))):
        progress.say("trial 0 complete")
        wait_for(lambda: b"Ctrl-C again stops at once" in raw.written)
    assert raw.written.startswith(b"trial 0 complete\n")
    assert len(sent) == 1
