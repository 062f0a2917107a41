"""A look at something now and then while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What it is saying is said before the block ends; one that hangs does not hold up the rest.
_LAST_WORD_S = 1.0


@contextmanager
def watched(look: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Runs `look` in a thread of its own while the block runs; the event that it gets is set when the block ends."""
    done = threading.Event()
    thread = threading.Thread(target=look, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_LAST_WORD_S)
