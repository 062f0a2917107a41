"""Who stopped a command is said as it was, by word and by exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

_WAITS = """
import signal, sys
from sweeps.commands import app as cli

@cli.app.command()
def wait():
    print("waits", flush=True)
    signal.pause()

sys.argv = ["edp-sweep", "wait"]
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGTERM, 143, "edp-sweep: stopped by SIGTERM"), (signal.SIGINT, 130, "edp-sweep: stopped by Ctrl-C")],
)
def test_a_signal_ends_a_command_with_its_name_and_its_code(number: signal.Signals, code: int, line: str) -> None:
    words = [sys.executable, "-c", _WAITS]

    def as_in_a_terminal() -> None:  # in the background a shell lets its commands ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, preexec_fn=as_in_a_terminal) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=400)
    assert process.returncode == code
    assert err.strip() == line
