"""The DDP loop of `examples/` runs as its docstring says, and its ε is that of what it says it does."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edp import EDPSpec, epsilon, epsilon_paper, planned_ledger

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_loop_trains_and_says_what_it_guarantees(long_story: None) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, "examples/private_ddp.py"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    planned = planned_ledger(
        EDPSpec(C=1.0, z0=4.0, decay="linear", tau=0.1),
        epochs=5,
        micro_batches=256,
        steps_per_epoch=16,
        rate=1 / 16,
        single_example=True,
    )
    honest, paper = (math.ceil(100 * bound(planned, 1e-5)) / 100 for bound in (epsilon, epsilon_paper))
    assert f"epsilon = {honest:.2f} for one example" in done.stdout
    assert f"formula {paper:.2f}" in done.stdout
    page = (ROOT / "docs" / "tutorial-ddp.md").read_text()
    assert f"epsilon = {honest:.2f} for one example at delta = 1e-05; by the paper's formula {paper:.2f}" in page
    assert done.stdout.count(" 16 steps, noise of std ") == 5
    (loss,) = re.findall(r"loss ([\d.]+)", done.stdout)
    assert float(loss) < 0.6, "better than tossing a coin, noise or not"
