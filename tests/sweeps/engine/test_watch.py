"""A process that listens, one that is gone, one that is busy; a driver that outlives Ray's raylet."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.engine.dying import _ask


def test_a_listener_is_told_from_one_that_is_gone(tmp_path: Path) -> None:
    place = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen()
        assert _ask(place) == "here"
    assert _ask(place) == "refused", "the file is there, nobody behind it"
    assert _ask(str(tmp_path / "nothing")) == "refused"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        listener.listen()
        assert _ask(address) == "here"
    assert _ask(address) == "refused"


_OUTLIVES = """
import os, sys, time
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
import sweeps, ray
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
os.kill(ray._private.worker._global_node.all_processes["raylet"][0].process.pid, 9)
time.sleep(1)
ray.shutdown()
open(sys.argv[1], "w").close()
"""


@pytest.mark.stress
def test_a_driver_without_a_parent_outlives_its_raylet(tmp_path: Path) -> None:
    """Without `sweeps` Ray ends such a driver in `shutdown`, with code 1 and without a word."""
    end = tmp_path / "end"
    # It returns when the driver has ended too, which holds the same pipes.
    ran = subprocess.run([sys.executable, "-c", _OUTLIVES, str(end)], check=True, capture_output=True, timeout=200)
    assert end.exists(), ran.stderr.decode()
