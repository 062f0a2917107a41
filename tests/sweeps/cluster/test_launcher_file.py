"""The cluster launcher's file: Ray's own check of it, and what that check does not see."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.command_runner import _with_interactive
from ray.autoscaler._private.docker import docker_start_cmds, with_docker_exec
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "ray_cluster.yaml"

COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)


@pytest.fixture
def cluster() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(LAUNCHER.read_text())
    return found


def check(config: dict[str, Any]) -> None:
    """Ray's check, on a copy: `prepare_config` fills in and changes what it is given."""
    validate_config(prepare_config(deepcopy(config)))


def split(cluster: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head's node type, and the workers'."""
    types = dict(cluster["available_node_types"])
    return types.pop(cluster["head_node_type"]), list(types.values())


def test_ray_accepts_it(cluster: dict[str, Any]) -> None:
    check(cluster)


def test_no_port_is_open_to_the_world(cluster: dict[str, Any]) -> None:
    # A node type without a group of its own gets one from Ray, with SSH open to 0.0.0.0/0.
    for name, node in cluster["available_node_types"].items():
        assert node["node_config"].get("SecurityGroupIds"), name
    rules = cluster["provider"].get("security_group", {}).get("IpPermissions", [])
    assert "0.0.0.0/0" not in str(rules)
    assert "::/0" not in str(rules)
    code = [line.partition("#")[0] for line in LAUNCHER.read_text().splitlines()]
    assert not [line for line in code if "0.0.0.0" in line]


def test_services_listen_on_the_head_alone(cluster: dict[str, Any]) -> None:
    (ray,) = (c for c in cluster["head_start_ray_commands"] if "ray start" in c)
    (mlflow,) = (c for c in cluster["initialization_commands"] if "mlflow server" in c)
    assert "--dashboard-host=127.0.0.1" in ray
    words = shlex.split(mlflow)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--backend-store-uri") + 1].startswith("postgresql://")


@pytest.mark.parametrize("role", ["head", "worker"])
def test_every_node_starts_ray_with_a_token_and_shared_storage(cluster: dict[str, Any], role: str) -> None:
    started = container(cluster, role)
    assert "--env=RAY_AUTH_MODE=token" in started
    assert "--volume=/mnt/sweeps:/mnt/sweeps" in started
    assert "/tmp/ray_tmp_mount/c//home/ray/.ray/auth_token:/home/ray/.ray/auth_token" in started
    assert cluster["file_mounts"]["/home/ray/.ray/auth_token"] == "~/.ray/auth_token"
    for commands in machine(cluster, role):
        (mount,) = (i for i, c in enumerate(commands) if "mountpoint -q /mnt/sweeps" in c)
        assert all("/mnt/sweeps" not in c for c in commands[:mount]), "nothing is written where no storage is mounted"
        assert any("chmod 600 " in c and c.endswith("/home/ray/.ray/auth_token") for c in commands)
    assert any("ray start" in c for c in cluster[f"{role}_start_ray_commands"])


def container(cluster: dict[str, Any], role: str) -> list[str]:
    """Words of the command that starts a node's container, as Ray makes it of the file."""
    docker = cluster["docker"]
    options = docker["run_options"] + docker[f"{role}_run_options"]
    words: str = docker_start_cmds(
        "ubuntu", docker["image"], cluster["file_mounts"], docker["container_name"], options, "c", "/home/ray", "docker"
    )
    return shlex.split(words)


def machine(cluster: dict[str, Any], role: str) -> list[list[str]]:
    """What each type of node runs on its machine, before a container is started."""
    if role == "head":
        return [cluster["initialization_commands"]]
    return [node["initialization_commands"] for node in split(cluster)[1]]


def test_no_secret_is_in_the_file(cluster: dict[str, Any]) -> None:
    assert "RAY_AUTH_TOKEN" not in LAUNCHER.read_text()
    assert not re.search(r"://[^/@\s]+:[^/@\s]+@", LAUNCHER.read_text())


def test_commands_are_bash(cluster: dict[str, Any]) -> None:
    commands = [c for key in COMMANDS for c in cluster.get(key, [])]
    commands += [c for node in split(cluster)[1] for c in node["initialization_commands"]]
    assert len(commands) > 10
    wrap: Callable[[str], list[str]] = _with_interactive
    for command in commands:
        # As it reaches a node: Ray's wrapper, through the shell that ssh starts.
        script = shlex.split(" ".join(wrap(command)))[-1]
        (inside,) = with_docker_exec([" ".join(wrap(command))], "edp-sweeps", "docker", with_interactive=True)
        for text in (command, script, inside):
            parsed = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
            assert parsed.returncode == 0, f"{text}\n{parsed.stderr}"
        assert "#" not in command, "a comment inside a folded command swallows the rest of it"
