"""What takes long is not silent: a bar where somebody watches, else a line now and then with the time that is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from sweeps.formatting.lines import print_line
from sweeps.run.watching import watched

PATIENCE_S = 10.0
"""Seconds without a word; then twice as many, and so on."""

Item = TypeVar("Item")


def shown(
    items: Iterable[Item], what: str, total: int, console: Console, patience_s: float = PATIENCE_S
) -> Iterator[Item]:
    """`items`, one after the other, with how far they have come.

    Args:
        what: is done with them.
        total: how many there are.
    """
    if console.is_terminal:
        yield from track(items, what, total, console=console, transient=True)
        return
    began, word = time.monotonic(), patience_s
    for done, item in enumerate(items):
        passed = time.monotonic() - began
        if done and passed >= word:
            word = 2 * passed
            left = passed / done * (total - done)
            print_line(console, f"{what}: {done:,} of {total:,}, about {left:.0f} s to go")
        yield item


def shown_each(what: str, console: Console) -> Callable[[Sequence[Item]], Iterable[Item]]:
    """`shown` for whoever takes a function of the items."""
    return lambda items: shown(items, what, len(items), console)


@contextmanager
def spoken_of(what: str, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Says that `what` goes on while the block runs for long, where nobody knows how far it has come."""
    began = time.monotonic()

    def speak(done: threading.Event) -> None:
        wait = patience_s
        while not done.wait(wait):
            passed = time.monotonic() - began
            say(f"{what}: for {passed:.0f} s so far")
            wait = passed

    with watched(speak, "spoken_of"):
        yield
