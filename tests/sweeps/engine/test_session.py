"""What a sweep joins and takes along: clusters of its own versions alone, and no file of the current folder."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import ray

from tests.conftest import TINY_RECIPE
from tests.support.drivers import below, kill
from tests.support.ports import free_port
from tests.support.waiting import wait_for

_HEAD = """
import sys, ray
from ray.scripts.scripts import main
ray.__version__, port = "2.59.0", sys.argv[1]
sys.argv = ["ray", "start", "--head", f"--port={port}", "--num-cpus=1", "--include-dashboard=false", "--block"]
main()
"""


@pytest.mark.usefixtures("own_ray")
def test_a_cluster_of_another_version_is_one_line_with_both(tmp_path: Path) -> None:
    recipe, log, port = tmp_path / "tiny.yaml", tmp_path / "head.log", free_port()
    recipe.write_text(TINY_RECIPE)
    words = ["-m", "sweeps.commands", "run", str(recipe), "--name", "s", "--storage", str(tmp_path / "runs")]
    # A folder of its own: the head would stand for the cluster of this machine.
    with TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder, log.open("w") as out:
        own = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder, "RAY_ADDRESS": f"127.0.0.1:{port}"}
        head = subprocess.Popen([sys.executable, "-c", _HEAD, str(port)], stdout=out, stderr=out, env=own)
        try:
            wait_for(lambda: "Ray runtime started" in log.read_text() or head.poll() is not None)
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=own)
        finally:
            for pid in (*below(head.pid), head.pid):
                kill(pid)
            head.wait()
    python = platform.python_version()
    assert done.returncode == 2, done.stderr
    for version in ("2.59.0", ray.__version__):
        assert f"Ray: {version} Python: {python}" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "runs" / "s").exists()


_BELOW_UV = """
import json, subprocess, sys
if sys.argv[1:] == ["child"]:
    import ray
    from ray.experimental.internal_kv import _internal_kv_list
    from sweeps.engine.session import connect
    connect("local", num_cpus=1)
    ran = ray.get(ray.remote(lambda: "ran").remote())
    print(json.dumps([ran, [key.decode() for key in _internal_kv_list("gcs://")]]))
else:
    subprocess.run([sys.argv[1], __file__, "child"], check=True)
"""


@pytest.mark.usefixtures("own_ray")
def test_no_file_of_the_current_folder_travels_under_uv_run(tmp_path: Path) -> None:
    """Ray takes a process for `uv run` by its command line."""
    (tmp_path / "run").write_text(_BELOW_UV)
    (tmp_path / "private.txt").write_text("turn the heating on")
    words = ["uv", "run", sys.executable]
    done = subprocess.run(words, executable=sys.executable, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["ran", []]
