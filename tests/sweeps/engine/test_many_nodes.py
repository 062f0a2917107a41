"""Many nodes, simulated: trials are packed a node each, and one whose node goes away goes on when there is another."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.support import many_nodes
from tests.support.many_nodes import EPOCHS, NODES


def test_three_trials_at_once_a_node_each_and_one_outlives_its_node(tmp_path: Path) -> None:
    # Two workers of four GPUs fill a node as eight of one do, with a quarter of the processes.
    words = [sys.executable, "-m", many_nodes.__name__, str(tmp_path), "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["concurrency"] == NODES
    assert "each in a TorchTrainer of its own on one node" in found["plan"]
    assert len(found["groups"]) == NODES
    assert all(len(where) == 1 for where in found["groups"]), "each trial on one node"
    assert len({where[0] for where in found["groups"]}) == NODES, "no two on the same"
    assert re.fullmatch(r"1 CPU \(free: 1[67] of 18\) and 8 GPU \(free: 0 of 16\) on one node", found["waits_for"])
    assert found["epochs"] == [list(range(1, EPOCHS + 1))] * NODES, "no epoch is missing or run twice"
    assert found["steps"] == [4 * EPOCHS] * NODES
    print(json.dumps({key: value for key, value in found.items() if key.startswith("seconds")}))
