"""A node that lacks files, the driver's code or a network interface is named before anything trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainables

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
    assert alone == unseen, "the only node is asked too"
    assert seen == ""
    assert unseen.startswith(f"storage = '{tmp_path}/gone': node ")
    assert "every node mounts at the same path" in unseen


ONE_NODE = """
import json, shutil, sys
from pathlib import Path
import trainables
from edp.spec import UserError
from sweeps.engine.nodes import check_nodes
from sweeps.engine.session import connect

def said():
    try:
        check_nodes({})
    except UserError as error:
        return str(error)
    return ""

def put(copy):
    there = Path("trainables")
    shutil.rmtree(there, ignore_errors=True)
    if copy:
        shutil.copytree(Path(trainables.__file__).parent, there)
    else:
        there.mkdir()
        (there / "__init__.py").touch()

connect("local", num_cpus=1)
put(copy=False)
lines = [said()]
put(copy=True)
print(json.dumps([*lines, said()]))
"""


@pytest.mark.usefixtures("own_ray")
def test_other_code_and_a_missing_network_interface_are_named(tmp_path: Path) -> None:
    """Another package `trainables` in the current folder is what workers import; a checkout with equal files is not."""
    script, folder = tmp_path / "script" / "one.py", tmp_path / "folder"
    script.parent.mkdir()
    script.write_text(ONE_NODE)
    folder.mkdir()
    words = [sys.executable, str(script)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo,nosuch0"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    other, equal = json.loads(done.stdout.splitlines()[-1])
    here = Path(trainables.__file__).parent
    assert f" would import {folder}/trainables, and this process runs {here}: other code; allowed: " in other
    assert equal.startswith("GLOO_SOCKET_IFNAME = 'lo,nosuch0': node ")
    assert "has no network interface nosuch0; allowed: lo" in equal
