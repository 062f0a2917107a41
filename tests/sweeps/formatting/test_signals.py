"""Who stopped a process is known whatever the signal found it at."""

from __future__ import annotations

import subprocess
import sys

import pytest

INSIDE_RAY = """
import os, signal, threading, time, ray
from sweeps.formatting.signals import exit_code, stopped_by, terminating
ray.init(num_cpus=1, log_to_driver=False, configure_logging=False, include_dashboard=False)
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray's own answer is to leave
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs are without
never = ray.remote(lambda: time.sleep(1000)).remote()
with terminating():
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGNAL)).start()
    try:
        ray.get(never)
    except KeyboardInterrupt as interrupt:
        print(stopped_by(interrupt), exit_code(stopped_by(interrupt)))
ray.shutdown()
"""


@pytest.mark.ray
@pytest.mark.parametrize(("sent", "said"), [("SIGTERM", "stopped by SIGTERM 143"), ("SIGINT", "stopped by Ctrl-C 130")])
def test_also_inside_a_call_to_ray(sent: str, said: str) -> None:
    words = [sys.executable, "-c", INSIDE_RAY.replace("SIGNAL", sent)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == said, ended.stderr
