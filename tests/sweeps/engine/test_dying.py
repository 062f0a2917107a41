"""Ctrl-C comes at any moment, also in the middle of a line that is printed."""

from __future__ import annotations

import io
import signal
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sweeps.engine.dying import interruptible, stopping_jobs
from sweeps.engine.progress import Progress
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
    stop_signal = SimpleNamespace(send=sent.append)
    with interruptible(), stopping_jobs(stop_signal, progress.say, "go on with: edp-sweep resume s", lambda: None):
        progress.say("trial 0 complete")
        wait_for(lambda: b"Ctrl-C again stops at once" in raw.written)
    assert raw.written.startswith(b"trial 0 complete\n")
    assert len(sent) == 1


def test_the_second_ctrl_c_ends_the_jobs_however_fast_it_follows() -> None:
    sent: list[str] = []
    stop_signal = SimpleNamespace(send=sent.append)
    before = signal.getsignal(signal.SIGINT)
    with interruptible():
        with stopping_jobs(stop_signal, lambda line: None, "go on", lambda: None):
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    wait_for(lambda: sent)
    assert len(sent) == 1
