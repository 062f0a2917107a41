"""Capacity of machines: the cluster's nodes, those to which it can scale, and the memory that models need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import yaml
from ray._common.utils import get_system_memory

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec
from sweeps.engine.address import ray_address
from trainables.config import CLCSpec, ModelSpec, TrialSpec

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""The file that Ray's cluster launcher writes on a head node for its autoscaler."""

_MAX_ADDRESS = 2**47
"""Bytes that a process can address. The memory of a cluster's machines is unknown before Ray is connected."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, in Ray's units."""

    cpus: float
    gpus: float

    def holds(self, workers: int, cpus: float, gpus: float) -> int:
        """Return the number of groups of `workers` that fit here, each worker with this many CPUs and GPUs."""
        by_cpu = self.cpus / (workers * cpus) if cpus else float("inf")
        by_gpu = self.gpus / (workers * gpus) if gpus else float("inf")
        return int(min(by_cpu, by_gpu) + 1e-6)


def nodes_now() -> list[Node]:
    """Return the machines of the cluster."""
    return [
        Node(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0))
        for node in ray.nodes()
        if node["Alive"]
    ]


def nodes_at_most(resources: ResourcesSpec, bootstrap: Path = BOOTSTRAP) -> list[Node]:
    """Return the machines of the cluster, and those that the autoscaler may add.

    Ray has no public function that returns the latter. They are read from the recipe (`resources.scales_to`), else from
    the configuration that a managed cluster may have reported to Ray, else from the launcher's file on the head node.
    """
    here = nodes_now()
    if (most := resources.scales_to) is not None:
        groups = [(Node(most.cpus, most.gpus), most.nodes)]
    else:
        groups = _reported() or _of_launcher(bootstrap)
    have = Counter(here)
    for node, number in groups:
        here += [node] * max(0, number - have[node])
    return here


def _reported() -> list[tuple[Node, int]]:
    """Return the node types that the cluster has reported to Ray, with their largest numbers."""
    config = ray._private.state.state.get_cluster_config()
    groups = config.node_group_configs if config is not None else []
    return [
        (Node(float(g.resources.get("CPU", 0)), float(g.resources.get("GPU", 0))), max(0, g.max_count)) for g in groups
    ]


def _of_launcher(path: Path) -> list[tuple[Node, int]]:
    """Return the node types of a cluster launcher's file, without the head's, with their largest numbers."""
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


def check_memory(trials: Iterable[TrialSpec], workers: int) -> None:
    """Raise if a trial's weights alone need more memory than this machine has, or than any machine can have.

    The workers of such a trial would die one after the other, after minutes.

    Raises:
        UserError: with the sizes.
    """
    here = ray_address() == "local"
    most, where = (get_system_memory(), "this machine") if here else (_MAX_ADDRESS, "any machine")
    processes = workers if here else 1
    names = ("embedding_size", "char_filters", "char_embedding_size", "hidden_size", "layers", "lora_rank")
    for model in (trial.model for trial in trials):
        needed = 4 * min_weights(model) * processes
        if needed > most:
            sizes = {name: value for name in names if (value := getattr(model, name, None)) is not None}
            raise UserError(
                f"{', '.join(f'model.{name} = {value:g}' for name, value in sizes.items())}: the weights alone take "
                f"{needed / 2**30:,.0f} GiB in {processes} worker(s), and {where} has {most / 2**30:,.0f} GiB; "
                f"allowed: a smaller model{', or fewer training.workers' if processes > 1 else ''}"
            )


def min_weights(model: ModelSpec) -> int:
    """Return a lower bound of a model's number of weights, without small parts and pretrained weights."""
    if isinstance(model, CLCSpec):
        h = model.hidden_size
        first, others = model.embedding_size + model.char_filters + h, 3 * h
        return 8 * h * (first + (model.layers - 1) * others) + 3 * model.char_filters * model.char_embedding_size
    adapters = 2 * (model.lora_rank or 0)
    if model.pretrained is not None:
        from trainables.features.pretrained import pretrained_encoder  # transformers takes seconds to import

        if pretrained_encoder(model.pretrained)[0] is not None:
            return adapters
    return adapters + 12 * model.hidden_size**2 * model.random_layers
