"""`ray job submit -- edp-sweep run …` on a cluster of this machine: status, logs, stops, and the rest by `resume`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.job_submission import JobSubmissionClient

from sweeps.store.lock import is_held
from tests.conftest import TINY_RECIPE, Command
from tests.support.drivers import below, kill
from tests.support.ports import free_port
from tests.support.waiting import wait_for

BIN = Path(sys.executable).parent
VARIABLES = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
    "RAY_AUTH_MODE": "disabled",
    "PATH": f"{BIN}:{os.environ['PATH']}",
}


@pytest.fixture
def address(tmp_path: Path, own_ray: None) -> Iterator[str]:
    """Start a cluster with a job server, and yield the server's address."""
    dashboard = free_port()
    start = ["--head", "--num-cpus", "3", "--block", "--port", str(free_port()), "--dashboard-port", str(dashboard)]
    start += ["--dashboard-agent-listen-port", str(free_port())]  # another Ray of this machine may hold the usual one
    with (tmp_path / "ray.log").open("w") as log:
        command = [str(BIN / "ray"), "start", *start]
        head = subprocess.Popen(command, env=VARIABLES, stdout=log, stderr=log, start_new_session=True)
    wait_for(lambda: "Ray runtime started" in (tmp_path / "ray.log").read_text() or head.poll() is not None)
    assert head.poll() is None, (tmp_path / "ray.log").read_text()
    try:
        yield f"http://127.0.0.1:{dashboard}"
    finally:
        for pid in [head.pid, *below(head.pid)]:
            kill(pid)
        head.wait()


def test_a_sweep_is_a_ray_job_that_stops_and_resumes(
    address: str, tmp_path: Path, long_story: None, command: Command
) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY_RECIPE)
    storage, jobs = tmp_path / "runs", JobSubmissionClient(address)
    where = ("--storage", str(storage))

    def submit(name: str, *words: str) -> None:
        command = [str(BIN / "ray"), "job", "submit", "--address", address, "--submission-id", name, "--no-wait", "--"]
        said = subprocess.run([*command, "edp-sweep", *words, *where], env=VARIABLES, capture_output=True, text=True)
        assert said.returncode == 0, said.stderr[-2000:]

    def end(name: str) -> str:
        return str(wait_for(lambda: status if (status := jobs.get_job_status(name)).is_terminal() else None))

    def checkpoint() -> bool:
        return any(storage.glob("one/trials/*/checkpoint.pt"))

    epochs = ("--set", "training.epochs=60", "--set", "search.stop=null")
    submit("first", "run", str(tmp_path / "tiny.yaml"), "--name", "one", *epochs)
    wait_for(lambda: checkpoint() or jobs.get_job_status("first").is_terminal())
    assert jobs.get_job_status("first") == "RUNNING", jobs.get_job_logs("first")
    assert command("stop", "one", *where)[0] == 0
    assert end("first") == "FAILED"  # as Ray calls every exit code but 0
    assert "stopped by Ctrl-C; go on with: edp-sweep resume one" in jobs.get_job_logs("first")
    assert checkpoint()

    submit("second", "resume", "one")
    wait_for(lambda: "resumes" in jobs.get_job_logs("second") or "trial" in jobs.get_job_logs("second"))
    jobs.stop_job("second")  # SIGTERM
    assert end("second") in ("STOPPED", "FAILED")
    wait_for(lambda: not is_held(storage / "one"))

    submit("third", "resume", "one")
    assert end("third") == "SUCCEEDED", jobs.get_job_logs("third")
    code, out, _ = command("front", "one", *where, "--json")
    assert (code, json.loads(out)["sweep"]) == (0, "one")
    assert json.loads(out)["front"]
