"""Ctrl-C once: running epochs end, are saved, and the sweep stops. Twice, or SIGTERM: it stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sweeps.formatting.signals import BY_CTRL_C, raise_terminated


class Interrupts:
    """What Ctrl-C does.

    Args:
        say: where to.
        how_to_go_on: the command.
    """

    def __init__(self, say: Callable[[str], None], how_to_go_on: str) -> None:
        self._say, self._how = say, how_to_go_on
        self._stop_signal: Any | None = None
        self._asked = False

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Answers Ctrl-C while the block runs; only in a program's main thread, which alone may."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, self._interrupted)
        signal.signal(signal.SIGTERM, raise_terminated)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def jobs(self, stop_signal: Any) -> Iterator[None]:
        """While the block runs, jobs may run, which `stop_signal` stops."""
        self._stop_signal = stop_signal
        try:
            yield
        finally:
            self._stop_signal = None

    def _interrupted(self, number: int, frame: object) -> None:
        if self._stop_signal is None or self._asked:
            raise KeyboardInterrupt
        self._asked = True
        # Not from a signal's handler, which may have come in the middle of a call to Ray, or of a line that is printed.
        threading.Thread(target=self._stop, args=(self._stop_signal,), daemon=True).start()

    def _stop(self, stop_signal: Any) -> None:
        stop_signal.send.remote(BY_CTRL_C)
        self._say(f"stopping when the running epochs have ended and are saved; Ctrl-C again stops at once; {self._how}")
