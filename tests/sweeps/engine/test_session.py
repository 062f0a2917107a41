"""Ray as a sweep starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import ray

from sweeps.engine.session import connect


def test_workers_keep_the_memory_of_a_step_and_this_process_has_its_environment_back(ray_cluster: str) -> None:
    @ray.remote(num_cpus=0)
    def variables() -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}

    assert ray.get(variables.remote()).items() >= {"MALLOC_MMAP_MAX_": "0", "MALLOC_ARENA_MAX": "1"}.items()
    assert not [name for name in os.environ if name.startswith("MALLOC_")]


def test_what_a_user_says_of_the_allocator_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr("ray.init", lambda **options: seen.update(os.environ))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "4")
    connect("local")
    assert (seen["MALLOC_ARENA_MAX"], seen["MALLOC_MMAP_MAX_"]) == ("4", "0")
    assert os.environ["MALLOC_ARENA_MAX"] == "4"


_HUNG = """
import ctypes, signal, sys
from sweeps.engine import session
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
session._START_S = float(sys.argv[1])
with session._mortal():
    print("hangs", flush=True)
    ctypes.PyDLL(None).sleep(60)  # it holds Python's lock, as Ray's start does
"""


@pytest.mark.parametrize(("most", "signals", "code"), [("50", 1, -signal.SIGINT), ("0.5", 0, 1)])
def test_a_start_of_ray_that_hangs_is_ended_by_ctrl_c_or_after_a_while(most: str, signals: int, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HUNG, most], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as hung:
        assert hung.stdout is not None
        assert hung.stdout.readline() == "hangs\n"
        for _ in range(signals):
            hung.send_signal(signal.SIGINT)
        _, said = hung.communicate(timeout=40)
    assert hung.returncode == code
    assert ("most recent call first" in said) == (code == 1), "the log shows where it hung"
