"""Every node must see the files that its workers read; whoever does not is named before anything trains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TWO_NODES = """
import json, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from edp.spec import UserError
from sweeps.engine.nodes import check_nodes

def said(path):
    try:
        check_nodes({"storage": Path(path)})
    except UserError as error:
        return str(error)
    return ""

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
here = sys.argv[1]
lines = [said(here + "/gone")]
cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
lines += [said(here), said(here + "/gone")]
print(json.dumps(lines))
"""


@pytest.mark.usefixtures("own_ray")
def test_a_node_that_does_not_see_a_folder_is_named(tmp_path: Path) -> None:
    words = [sys.executable, "-c", TWO_NODES, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, seen, unseen = json.loads(done.stdout.splitlines()[-1])
    assert alone == "", "one node is the driver's own, which reads the files itself"
    assert seen == ""
    assert unseen.startswith(f"storage = '{tmp_path}/gone': node ")
    assert "every node mounts at the same path" in unseen
