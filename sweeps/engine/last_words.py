"""The last words of a process that is ended in the middle of a call, without a chance to speak."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rich.console import Console

from sweeps.text.secrets import redacted

_SPEAK = """
import sys
if not sys.stdin.buffer.read():
    sys.stderr.write(sys.argv[1])
"""
"""A program that waits for its input to end, and prints its argument if nothing was written."""
_SHOW_CURSOR = "\x1b[?25h"
"""What makes a terminal show the cursor, which a live display hides."""


@contextmanager
def spoken_for(line: str, console: Console) -> Iterator[Callable[[], None]]:
    """Have another process print `line` if this process ends within the block.

    Ray ends a driver at once, by C's `_exit`, if a call meets a raylet or an object store that has just died. No code
    of the driver runs then. SIGKILL does the same.

    Yields:
        A function that makes the other process silent, for a process that speaks for itself.
    """
    stream = None
    with suppress(AttributeError, OSError, ValueError):  # no stream of the system, such as a notebook's
        stream = console.file.fileno()
    if stream is None:
        yield lambda: None
        return
    text = f"{_SHOW_CURSOR if console.is_terminal else ''}\nedp-sweep: {redacted(line)}\n"
    command = [sys.executable, "-ISc", _SPEAK, text]
    with subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stderr=stream, start_new_session=True) as speaker:
        assert speaker.stdin is not None, "it is a pipe"
        pipe = speaker.stdin

        def hush() -> None:
            with suppress(OSError, ValueError):  # it is closed, or the other process is gone
                pipe.write(b"\n")
                pipe.close()

        try:
            yield hush
        finally:
            hush()
