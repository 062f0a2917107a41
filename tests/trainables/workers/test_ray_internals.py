"""What a new version of Ray has changed of its private APIs, and what no longer works then."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from ray.core.generated import autoscaler_pb2
from ray.util.placement_group import placement_group, remove_placement_group

import trainables
from trainables.workers import ray_internals

ROOT = Path(trainables.__file__).parents[1]
PRIVATE = re.compile(r"\bray\.(_private|_common|_raylet|core\.generated)\b")


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        pytest.fail(f"Ray {ray.__version__}: {what} no longer works: {type(error).__name__}: {error}")


def test_no_other_file_uses_a_private_api_of_ray() -> None:
    packages = ("edp", "trainables", "sweeps", "dashboards")
    found = [file for name in packages for file in (ROOT / name).rglob("*.py") if PRIVATE.search(file.read_text())]
    assert found == [Path(ray_internals.__file__)]


def test_the_table_of_drivers_leaves_out_this_one_and_those_without_a_name(
    ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with needed_for("sharing a cluster among sweeps (search.concurrency)"):
        me = ray_internals.this_driver()
        assert me not in ray_internals.other_drivers()
        monkeypatch.setattr(ray_internals, "this_driver", lambda: "another")
        monkeypatch.setattr(ray_internals, "_NAME", "tune_name")  # no driver of this test has a name
        assert ray_internals.other_drivers() == {}
        table = ray_internals._tables().get_job_table(
            skip_submission_job_info_field=True, skip_is_running_tasks_field=True
        )
        jobs = [ray_internals._messages.JobTableData.FromString(entry) for entry in table]
        own = next(job for job in jobs if job.job_id.hex() == me)
        assert not own.is_dead
        assert isinstance(dict(own.config.metadata), dict)


def test_the_table_of_placement_groups_says_whose_they_are(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = placement_group([{"CPU": 0.5}])
    ray.get(group.ready(), timeout=60)
    try:
        with needed_for("naming the sweeps that hold a cluster's CPUs"):
            me = ray_internals.this_driver()
            assert me not in ray_internals.held_by_others()
            with monkeypatch.context() as patch:
                patch.setattr(ray_internals, "this_driver", lambda: "another")
                assert ray_internals.held_by_others()[me]["CPU"] >= 0.5
        with needed_for("removing what a dead controller of Ray Train has reserved"):
            ray_internals.remove_orphans()
            assert group.bundle_specs == [{"CPU": 0.5}]
            with monkeypatch.context() as patch:
                patch.setattr(ray_internals, "this_driver", lambda: "another")
                assert ray_internals.held_by_others()[me]["CPU"] >= 0.5, "a group of the driver's own was removed"
    finally:
        remove_placement_group(group)


def test_the_types_of_nodes_of_a_managed_cluster_are_read(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with needed_for("planning for the nodes that an autoscaler may add"):
        assert ray_internals.node_types() == []
        kind = {"name": "gpu", "resources": {"CPU": 8, "GPU": 1}, "max_count": 3}
        # Protobuf makes the class when the module is imported, and Ray ships no types for it.
        config = autoscaler_pb2.ClusterConfig(node_group_configs=[kind])  # type: ignore[attr-defined]
        monkeypatch.setattr(ray._private.state.state, "get_cluster_config", lambda: config)
        assert ray_internals.node_types() == [({"CPU": 8, "GPU": 1}, 3)]


def test_this_machines_raylet_listens_where_it_is_said(ray_cluster: str) -> None:
    with needed_for("noticing that this machine's Ray has died"):
        socket = ray_internals.raylet_socket()
        assert socket is not None
        assert Path(socket).is_socket()


@pytest.mark.slow
def test_a_token_of_this_machine_is_taken() -> None:
    show = "import os; from trainables.workers import ray_internals as r; r.take_own_token(); print(os.environ['{}'])"
    told = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    ran = subprocess.run(
        [sys.executable, "-c", show.format("RAY_AUTH_MODE")],
        env=told | {"RAY_AUTH_TOKEN": "0" * 64},
        capture_output=True,
        text=True,
    )
    with needed_for("joining a cluster that asks for its token"):
        assert ran.stdout == "token\n", ran.stderr
