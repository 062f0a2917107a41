"""The cluster launcher's file: Ray's own check of it, and what that check does not see."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray.autoscaler._private.command_runner import _with_interactive
from ray.autoscaler._private.util import prepare_config, validate_config

from sweeps.recipes.loading import load_recipe, recipe_names

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "ray_cluster.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

KNOWN_RESOURCES = {"CPU", "GPU", "memory", "object_store_memory"}
# vCPUs and GPUs that these have; the autoscaler would believe whatever the file says.
INSTANCES = {"m7i.2xlarge": (8, 0), "p3.16xlarge": (64, 8), "p4d.24xlarge": (96, 8), "p5.48xlarge": (192, 8)}
COMMANDS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)

Break = Callable[[dict[str, Any]], Any]


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


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda c: c.update(max_worker=4), "max_worker"),
        (lambda c: c.update(max_workers="four"), "four"),
        (lambda c: c["available_node_types"]["gpu-a100"].update(spot=True), "spot"),
        (lambda c: c["available_node_types"]["gpu-a100"]["resources"].update(GPU="8"), "'8'"),
        (lambda c: c["available_node_types"]["gpu-a100"].pop("node_config"), "node_config"),
        (lambda c: c.update(setup_commands=[{"pip": "install"}]), "install"),
        (lambda c: c["auth"].update(user="ubuntu"), "user"),
    ],
)
def test_ray_refuses_a_broken_copy(cluster: dict[str, Any], break_it: Break, complaint: str) -> None:
    break_it(cluster)
    with pytest.raises(jsonschema.ValidationError, match=re.escape(complaint)):
        check(cluster)


def test_ray_refuses_an_unknown_head_type(cluster: dict[str, Any]) -> None:
    cluster["head_node_type"] = "haed"
    with pytest.raises(ValueError, match="head_node_type"):
        check(cluster)


def test_resources_are_what_the_instances_have(cluster: dict[str, Any]) -> None:
    for name, node in cluster["available_node_types"].items():
        assert set(node["resources"]) <= KNOWN_RESOURCES, name
        found = (node["resources"]["CPU"], node["resources"].get("GPU", 0))
        assert found == INSTANCES[node["node_config"]["InstanceType"]], name


def test_head_has_no_gpu_and_workers_have_eight(cluster: dict[str, Any]) -> None:
    head, workers = split(cluster)
    assert head["resources"].get("GPU", 0) == 0
    assert [worker["resources"]["GPU"] for worker in workers] == [8, 8]


def test_workers_scale_from_none_to_the_limit(cluster: dict[str, Any]) -> None:
    head, workers = split(cluster)
    assert head["max_workers"] == 0
    assert all(worker["min_workers"] == 0 for worker in workers)
    enabled = [worker for worker in workers if worker["max_workers"] > 0]
    assert len(enabled) == 1, "of two types that fit, the autoscaler takes either"
    assert enabled[0]["max_workers"] == cluster["max_workers"] > 0


def test_workers_are_spot_and_the_head_is_not(cluster: dict[str, Any]) -> None:
    head, workers = split(cluster)
    assert "InstanceMarketOptions" not in head["node_config"]
    assert all(w["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot" for w in workers)


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
    commands = cluster["head_start_ray_commands"]
    (ray,) = (c for c in commands if "ray start" in c)
    (mlflow,) = (c for c in commands if "mlflow server" in c)
    assert "--dashboard-host=127.0.0.1" in ray
    words = shlex.split(mlflow)
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert words[words.index("--backend-store-uri") + 1].startswith("postgresql://")


@pytest.mark.parametrize("role", ["head", "worker"])
def test_every_node_starts_ray_with_a_token_and_shared_storage(cluster: dict[str, Any], role: str) -> None:
    commands = cluster[f"{role}_start_ray_commands"]
    (start,) = (i for i, c in enumerate(commands) if "ray start" in c)
    assert commands[start].startswith("export RAY_AUTH_MODE=token;")
    assert "mountpoint -q /mnt/sweeps" in commands[0]
    assert start > 0
    assert any("RAY_AUTH_MODE=token" in c and "~/.bashrc" in c for c in cluster["setup_commands"])
    home = f"/home/{cluster['auth']['ssh_user']}"
    assert cluster["file_mounts"][f"{home}/.ray/auth_token"] == "~/.ray/auth_token"


def test_no_secret_is_in_the_file(cluster: dict[str, Any]) -> None:
    assert "RAY_AUTH_TOKEN" not in LAUNCHER.read_text()
    assert not re.search(r"://[^/@\s]+:[^/@\s]+@", LAUNCHER.read_text())


def test_the_lock_is_what_is_installed(cluster: dict[str, Any]) -> None:
    (install,) = (c for c in cluster["setup_commands"] if "requirements.lock" in c)
    assert re.search(r"pip install (-q )?-r requirements\.lock && \S*pip install (-q )?--no-deps -e \.", install)
    (python,) = (re.search(r"--python (\d+\.\d+)", c) for c in cluster["setup_commands"] if "uv venv" in c)
    assert python is not None
    assert PROJECT["project"]["requires-python"] == f">={python[1]}"


def test_all_of_the_project_is_copied(cluster: dict[str, Any]) -> None:
    mounts = {v for k, v in cluster["file_mounts"].items() if k.startswith("/home/ubuntu/edp-sweeps/")}
    packages = {p.rstrip("*") for p in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    project = PROJECT["project"]
    files = {"pyproject.toml", "requirements.lock", project["readme"], *project["license-files"]}
    assert mounts == packages | files
    assert all((ROOT / package).is_dir() for package in packages)
    assert all(k.endswith(f"/{v}") for k, v in cluster["file_mounts"].items() if v in mounts)


def test_commands_are_bash(cluster: dict[str, Any]) -> None:
    commands = [c for key in COMMANDS for c in cluster.get(key, [])]
    assert len(commands) > 10
    wrap: Callable[[str], list[str]] = _with_interactive
    for command in commands:
        # As it reaches a node: Ray's wrapper, through the shell that ssh starts.
        script = shlex.split(" ".join(wrap(command)))[-1]
        for text in (command, script):
            parsed = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, check=False)
            assert parsed.returncode == 0, f"{text}\n{parsed.stderr}"
        assert "#" not in command, "a comment inside a folded command swallows the rest of it"


@pytest.mark.parametrize("recipe", recipe_names())
def test_a_trial_of_every_recipe_fits_a_node(cluster: dict[str, Any], recipe: str) -> None:
    _, loaded = load_recipe(recipe, [])
    per_gpu = loaded.resources.gpus_per_worker
    needed = loaded.training.workers * (1 if per_gpu == "auto" else per_gpu)
    for worker in split(cluster)[1]:
        assert needed <= worker["resources"]["GPU"], f"{recipe} needs {needed} GPUs"
