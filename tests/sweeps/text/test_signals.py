"""Who stopped a process is known whatever the signal found it at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sweeps.engine.dying import own_answer
from sweeps.text.signals import Terminated, terminating

INSIDE_RAY = """
import os, signal, threading, time, ray
from sweeps.text.signals import exit_code, stopped_by, terminating
ray.init("local", num_cpus=1, log_to_driver=False, configure_logging=False, include_dashboard=False)
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


@pytest.mark.parametrize(("sent", "said"), [("SIGTERM", "stopped by SIGTERM 143"), ("SIGINT", "stopped by Ctrl-C 130")])
def test_also_inside_a_call_to_ray(sent: str, said: str, own_ray: None) -> None:
    words = [sys.executable, "-c", INSIDE_RAY.replace("SIGNAL", sent)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == said, ended.stderr


@pytest.fixture
def unanswered() -> Iterator[None]:
    """SIGTERM as a fresh process has it: a Ray that an earlier test began here has left its own answer."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("unanswered")
@pytest.mark.parametrize("lost", [True, False])
def test_what_another_handler_makes_of_it_or_loses_is_answered(lost: bool) -> None:
    def come() -> None:
        with own_answer(signal.SIGTERM):
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            with suppress(SystemExit if lost else ()):
                os.kill(os.getpid(), signal.SIGTERM)

    with terminating(), pytest.raises(Terminated):
        come()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
