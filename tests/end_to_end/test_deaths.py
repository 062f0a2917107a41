"""A sample of what `tests.benchmarks.deaths` kills: whatever dies, no trial is charged, and the sweep ends whole."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.deaths import MortalSweep, walk

SAMPLE = {
    "job queue": ["first trial", "last trial"],
    "trial's process": ["second trial"],
    "Train's controller": ["first trial"],
}


@pytest.mark.parametrize("kind", SAMPLE)
def test_a_process_of_a_sweep_dies_and_nobody_is_let_down(kind: str, own_ray: None, tmp_path: Path) -> None:
    deaths = list(walk(kind, tmp_path, SAMPLE[kind]))
    assert [death.moment for death in deaths] == SAMPLE[kind]
    assert all(death.held for death in deaths), [death.fate for death in deaths]
    assert deaths[-1].fate == "went on"


def test_two_ctrl_c_end_a_sweep_whose_processes_have_just_died(own_ray: None, tmp_path: Path) -> None:
    sweep = MortalSweep(tmp_path)
    try:
        assert sweep.killed("job queue", "first trial")
        for _ in range(2):
            os.kill(sweep.driver.process.pid, signal.SIGINT)
            time.sleep(0.05)
        assert sweep.driver.end() == 130, sweep.driver.said()
        assert "go on with: edp-sweep resume s" in sweep.driver.said().splitlines()[-1]
        assert "Traceback" not in sweep.driver.said()
    finally:
        sweep.close()
