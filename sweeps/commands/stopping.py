"""The exception of a command that was stopped: it says why it ended, and how to go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sweeps.text.signals import exit_code, stopped_by


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
