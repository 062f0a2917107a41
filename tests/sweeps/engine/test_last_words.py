"""A process that is ended in the middle of a call is spoken for, once; one that ends by itself is not."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rich.console import Console

from sweeps.engine.last_words import spoken_for

_PROGRAM = """
import os, sys
from rich.console import Console
from sweeps.engine.last_words import spoken_for
with spoken_for("gone; go on with: edp-sweep resume a", Console(stderr=True)) as hush:
    {end}
"""
_LINE = "edp-sweep: gone; go on with: edp-sweep resume a"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "spoken"),
    [
        ("os._exit(1)", 1),
        ("os.kill(os.getpid(), 9)", 1),
        ("pass", 0),
        ("sys.exit(1)", 0),
        ("hush(); os._exit(1)", 0),
    ],
)
def test_only_a_process_that_cannot_speak_is_spoken_for(end: str, spoken: int) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM.format(end=end)], stderr=subprocess.PIPE, text=True)
    assert done.stderr.count(_LINE) == spoken, "the pipe of standard error ends when the speaker has ended"


def test_a_stream_of_no_system_is_left_alone() -> None:
    import io

    with spoken_for("gone", Console(file=io.StringIO())) as hush:
        hush()
