"""A session that is killed leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import reaper
from tests.support.waiting import wait_for

SESSION = """
import os, signal, subprocess
from tests.support.reaper import MARK, start
start()
child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
print(os.environ[MARK], child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_a_killed_session_started_ends_after_it() -> None:
    own = {name: value for name, value in os.environ.items() if name != reaper.MARK}
    session = subprocess.run([sys.executable, "-c", SESSION], env=own, stdout=subprocess.PIPE, text=True, check=False)
    assert session.returncode == -9
    mark, started = session.stdout.split()
    assert reaper.marked(mark) == {int(started)}, "or nothing is shown"
    wait_for(lambda: not reaper.marked(mark))
