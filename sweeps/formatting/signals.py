"""Who stopped this process, in words and as an exit code."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BY_CTRL_C = "stopped by Ctrl-C"
BY_SIGTERM = "stopped by SIGTERM"

_CODES = {BY_CTRL_C: 130, BY_SIGTERM: 143}


_came: set[int] = set()
"""Signals that `raise_terminated` has answered: inside a call to Ray it leaves a bare KeyboardInterrupt."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: it stops what Ctrl-C would stop, and is no Ctrl-C."""

    def __str__(self) -> str:
        return BY_SIGTERM


def raise_terminated(number: int, frame: object) -> None:
    """A handler of SIGTERM. A machine that goes down sends this, and then waits for seconds only.

    Raises:
        Terminated: always.
    """
    _came.add(number)
    raise Terminated


@contextmanager
def terminating() -> Iterator[None]:
    """Answers SIGTERM while the block runs, in a program's main thread, where nobody else does."""
    _came.clear()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def interrupt_of(number: int) -> KeyboardInterrupt:
    """What the signal of this number raises."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def stopped_by(interrupt: BaseException) -> str:
    """Who it was, as a reason."""
    return BY_SIGTERM if isinstance(interrupt, Terminated) or signal.SIGTERM in _came else BY_CTRL_C


def exit_code(reason: str) -> int:
    """What a shell is told of a process that ended for `reason`: 128 and the signal's number, or 1."""
    return _CODES.get(reason, 1)
