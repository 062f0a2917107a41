"""Ctrl-C and SIGTERM: handlers, reasons in words, exit codes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

BY_CTRL_C = "stopped by Ctrl-C"
BY_SIGTERM = "stopped by SIGTERM"

_handled: set[int] = set()
"""Signals that `raise_terminated` has handled. A call to Ray turns `Terminated` into a bare KeyboardInterrupt."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which stops everything that Ctrl-C stops, with its own reason and exit code."""

    def __str__(self) -> str:
        return BY_SIGTERM


def raise_terminated(number: int, frame: object) -> None:
    """Handle SIGTERM. A machine that shuts down sends it and then waits only for seconds.

    Raises:
        Terminated: always.
    """
    _handled.add(number)
    raise Terminated


@contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle a signal while the block runs. Do nothing outside of the main thread, where Python forbids it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def terminating() -> Iterator[None]:
    """Handle SIGTERM while the block runs, in the main thread and unless another handler is set."""
    _handled.clear()
    free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    with handling(signal.SIGTERM, raise_terminated) if free else nullcontext():
        yield


def stopped_by(interrupt: BaseException) -> str:
    """Return the reason in words: SIGTERM or Ctrl-C."""
    return BY_SIGTERM if isinstance(interrupt, Terminated) or signal.SIGTERM in _handled else BY_CTRL_C


def exit_code(reason: str) -> int:
    """Return the exit code for `reason`: 128 plus the signal's number, or 1."""
    return {BY_CTRL_C: 130, BY_SIGTERM: 143}.get(reason, 1)


class SweepStopped(RuntimeError):
    """A command was stopped before its end. The text says by what and, for a sweep, which command goes on.

    Attributes:
        code: exit code of a process that ends with it.
    """

    def __init__(self, reason: str, how_to_go_on: str = "") -> None:
        super().__init__(f"{reason}; {how_to_go_on}" if how_to_go_on else reason)
        self.code = exit_code(reason)


def how_to_go_on(command: str) -> str:
    """Return the words that name the command which goes on."""
    return f"go on with: {command}"


@contextmanager
def going_on_with(command: str) -> Iterator[None]:
    """Name `command` as the one that goes on if the block is stopped.

    Raises:
        SweepStopped: instead of a KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        raise SweepStopped(stopped_by(interrupt), how_to_go_on(command)) from None
