"""What a cluster has, and what it can scale to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import yaml

from sweeps.recipes.parts import ResourcesSpec

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""What the cluster launcher leaves on a head node, for its autoscaler."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray counts it."""

    cpus: float
    gpus: float

    def holds(self, workers: int, cpus: float, gpus: float) -> int:
        """How many groups of `workers` fit here, of so many CPUs and GPUs a worker."""
        by_cpu = self.cpus / (workers * cpus) if cpus else float("inf")
        by_gpu = self.gpus / (workers * gpus) if gpus else float("inf")
        return int(min(by_cpu, by_gpu) + 1e-6)


def nodes_now() -> list[Node]:
    """The machines that are there."""
    return [
        Node(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0))
        for node in ray.nodes()
        if node["Alive"]
    ]


def nodes_at_most(resources: ResourcesSpec, bootstrap: Path = BOOTSTRAP) -> list[Node]:
    """The machines that are there, and those that the autoscaler may add.

    Ray itself tells nobody what its autoscaler may add, so it is read off the recipe (`resources.scales_to`), else off
    what a managed cluster may have reported to Ray, else off the launcher's file on the head node.
    """
    here = nodes_now()
    if resources.scales_to is not None:
        wanted = resources.scales_to
        groups = [(Node(wanted.cpus, wanted.gpus), wanted.nodes)]
    else:
        groups = _reported() or _of_launcher(bootstrap)
    have = Counter(here)
    for node, most in groups:
        here += [node] * max(0, most - have[node])
    return here


def _reported() -> list[tuple[Node, int]]:
    config = ray._private.state.state.get_cluster_config()
    groups = config.node_group_configs if config is not None else []
    return [
        (Node(float(g.resources.get("CPU", 0)), float(g.resources.get("GPU", 0))), max(0, g.max_count)) for g in groups
    ]


def _of_launcher(path: Path) -> list[tuple[Node, int]]:
    """Node types of a cluster launcher's file, the head's apart."""
    path = path.expanduser()
    if not path.is_file():
        return []
    config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    most = int(config.get("max_workers", 0))
    found = []
    for name, kind in config.get("available_node_types", {}).items():
        if name != config.get("head_node_type"):
            has = kind.get("resources", {})
            node = Node(float(has.get("CPU", 0)), float(has.get("GPU", 0)))
            found.append((node, min(most, int(kind.get("max_workers", most)))))
    return found
