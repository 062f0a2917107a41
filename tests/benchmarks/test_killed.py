"""A benchmark that is killed leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="processes are found below /proc (Linux)")

WORKS = {
    "step": "tests.benchmarks.step --models clc --methods edp --batch-sizes 4 --workers 2 --rounds 10000 "
    "--utterances 300",
    "search": "tests.benchmarks.search --seeds 1000 --processes 2",
}


def in_session(session: int) -> set[int]:
    """Living processes of a session, zombies aside."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            found.add(int(stat.parent.name))
    return found


@pytest.mark.parametrize("name", WORKS)
def test_no_worker_outlives_a_benchmark_that_was_killed(name: str, kill: Callable[[int, int], None]) -> None:
    call = [sys.executable, "-m", *WORKS[name].split()]
    process = subprocess.Popen(call, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # the command itself, its workers and the resource tracker of `multiprocessing`
        wait_for(lambda: len(in_session(process.pid)) == 4, 300)
    finally:
        kill(process.pid, signal.SIGKILL)
        process.wait()
    try:
        wait_for(lambda: not in_session(process.pid), 300)  # a worker ends once it has imported torch
    finally:
        for left in in_session(process.pid):
            kill(left, signal.SIGKILL)
