"""The placement of trials in the cluster, checked before anything starts, and a sweep's share of the cluster.

The cluster is what runs now, and what its autoscaler may add.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ray
import yaml

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec, SearchSpec
from trainables.config import TrainingSpec
from trainables.workers.client import GroupSpec
from trainables.workers.ray_internals import node_types, other_drivers, this_driver

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
"""The file that Ray's cluster launcher writes on a head node for its autoscaler."""


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
    return [_node(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def nodes_at_most(resources: ResourcesSpec, bootstrap: Path = BOOTSTRAP) -> list[Node]:
    """Return the machines of the cluster, and those that the autoscaler may add.

    Ray has no public function that returns the latter. They are read from the recipe (`resources.scales_to`), else from
    the configuration that a managed cluster may have reported to Ray, else from the launcher's file on the head node.
    """
    here = nodes_now()
    if (most := resources.scales_to) is not None:
        groups = [(Node(most.cpus, most.gpus), most.nodes)]
    else:
        groups = [(_node(has), max(0, most)) for has, most in node_types()] or _of_launcher(bootstrap)
    have = Counter(here)
    for node, number in groups:
        here += [node] * max(0, number - have[node])
    return here


def _node(resources: Mapping[str, float]) -> Node:
    return Node(float(resources.get("CPU", 0)), float(resources.get("GPU", 0)))


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
            found.append((_node(kind.get("resources", {})), min(most, int(kind.get("max_workers", most)))))
    return found


_EXACT = 1e-9
"""Tolerance of sums of shares: in floating point, 3 x 0.65 is more than 1.95."""

# More processes than this on a core spend their time on switching.
_MIN_CPUS_PER_WORKER = 0.1

TUNE_CPUS = 0.05
"""CPUs of a trial's process under Tune."""

_LOOK_S = 2.0
"""Seconds between looks at the other sweeps on the cluster."""


@dataclass(frozen=True)
class Placement:
    """The placement of trials."""

    group: GroupSpec
    concurrency: int
    """Largest number of trials at once. Sweeps that share a cluster may run fewer (`at_once`)."""
    fits: int
    """Number of trials that the whole cluster holds."""
    mode: Literal["warm", "fresh"]
    note: str = ""
    """The resources that stay idle, or are still missing, in words."""

    @property
    def line(self) -> str:
        """The placement in one line."""
        group = self.group
        share = f"{group.gpus_per_worker:g} GPU" if group.gpus_per_worker else f"{group.cpus_per_worker:.2g} CPU"
        packed = " on one node" if group.one_node else ""
        many = f"in up to {self.concurrency} warm worker groups" if self.concurrency > 1 else "in one warm worker group"
        how = f"{many}{packed}" if self.mode == "warm" else f"each in a TorchTrainer of its own{packed}"
        note = f" ({self.note})" if self.note else ""
        workers = f"{group.workers} worker{'s' if group.workers > 1 else ''}"
        return f"{self.concurrency} trial(s) at once, {workers} each, {share} a worker, {how}{note}"


def placement(training: TrainingSpec, resources: ResourcesSpec, search: SearchSpec) -> Placement:
    """Fit trials of `training` into the cluster to which Ray is connected.

    Raises:
        UserError: if one trial can never fit, with the setting to change.
    """
    nodes, here = nodes_at_most(resources), nodes_now()
    if training.device == "cpu":
        nodes, here = [Node(node.cpus, 0.0) for node in nodes], [Node(node.cpus, 0.0) for node in here]
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    workers = training.workers
    per_gpu = _gpus_per_worker(training, resources, gpus)
    per_cpu = _cpus_per_worker(workers, resources, cpus)
    mode: Literal["warm", "fresh"]
    mode = "fresh" if resources.group == "fresh" else "warm"
    whole, one_node = _fitting(nodes, workers, per_cpu, per_gpu)
    fits = whole if resources.share == "auto" else max(1, int(whole * resources.share + 1e-6))
    concurrency = min(fits, search.trials) if search.concurrency == "auto" else search.concurrency
    if concurrency > fits:
        share = f"resources.share = {resources.share:g} of " if fits < whole else ""
        why = f"{share}the cluster holds {fits} trial(s) of {workers} workers; allowed: at most {fits}"
        raise UserError(f"search.concurrency = {concurrency} does not fit: {why}")
    gpus_here = sum(node.gpus for node in here)
    backend: Literal["gloo", "nccl"]
    backend = "nccl" if per_gpu >= 1 and (not gpus_here or _has_real_gpus()) else "gloo"
    group = GroupSpec(
        workers=workers,
        cpus_per_worker=per_cpu,
        gpus_per_worker=per_gpu,
        backend=backend,
        one_node=one_node and len(nodes) > 1,
    )
    alone = fits == whole  # the rest of a share is for others, and not idle
    idle = sum(node.gpus for node in nodes) - concurrency * workers * per_gpu if per_gpu and alone else 0.0
    notes = [f"{idle:g} GPUs idle; another number of training.workers may use them"] if idle >= 1 else []
    if len(nodes) > len(here):
        notes.append(f"{len(here)} of at most {len(nodes)} nodes run; the others are requested")
    return Placement(group, concurrency, whole, mode, "; ".join(note for note in notes if note))


def _fitting(nodes: list[Node], workers: int, per_cpu: float, per_gpu: float) -> tuple[int, bool]:
    """Return the number of trials that fit at once, at least one, and True if each fits on one node.

    The callers have checked that the totals suffice for one trial. Each trial has a process under Tune besides.
    """
    room = [Node(node.cpus - TUNE_CPUS * node.holds(workers, per_cpu, per_gpu), node.gpus) for node in nodes]
    packed = sum(node.holds(workers, per_cpu, per_gpu) for node in room)
    if packed:
        return packed, True
    together = Node(sum(node.cpus for node in nodes) - TUNE_CPUS, sum(node.gpus for node in nodes))
    return max(1, together.holds(workers, per_cpu, per_gpu)), False


def _cpus_per_worker(workers: int, resources: ResourcesSpec, cpus: float) -> float:
    """Return the CPUs of a worker.

    Args:
        cpus: CPUs of the cluster.
    """
    usable = cpus - TUNE_CPUS
    if resources.cpus_per_worker == "auto":
        per_cpu, least = min(1.0, math.floor(usable / workers * 1e3) / 1e3), _MIN_CPUS_PER_WORKER
    else:
        per_cpu = least = resources.cpus_per_worker
    if per_cpu < least or workers * per_cpu > usable + _EXACT:
        raise UserError(
            f"training.workers = {workers} can never run: the cluster has {cpus:g} CPUs and a worker needs at "
            f"least {least:g}; allowed: at most {int(usable / least + _EXACT)} workers"
        )
    return per_cpu


def _gpus_per_worker(training: TrainingSpec, resources: ResourcesSpec, gpus: float) -> float:
    """Return the GPUs of a worker.

    Args:
        gpus: GPUs of the cluster.
    """
    if resources.gpus_per_worker == "auto":
        # If there are fewer GPUs than workers, workers share them; 1e-4 is Ray's smallest share.
        per_gpu = min(1.0, math.floor(gpus / training.workers * 1e4) / 1e4)
    else:
        per_gpu = resources.gpus_per_worker
    if training.device == "cuda" and not per_gpu:
        raise UserError(
            "training.device = cuda, but the cluster has no GPU; allowed: auto, cpu, or resources.scales_to, "
            "the machines that the autoscaler may add"
        )
    if per_gpu > 0 and training.workers * per_gpu > gpus + _EXACT:
        most = int(gpus / per_gpu + _EXACT)
        raise UserError(
            f"training.workers = {training.workers} at resources.gpus_per_worker = {per_gpu:g} can never run: the "
            f"cluster has {gpus:g} GPUs; allowed: "
            + (f"at most {most} workers" if most else "resources.gpus_per_worker=0, which trains on CPU")
        )
    return per_gpu


def _has_real_gpus() -> bool:
    """Return True if a worker with a GPU sees a CUDA device. The logical GPUs of a test cluster are no devices."""

    @ray.remote(num_cpus=0, num_gpus=0.01)
    def look() -> bool:
        import torch

        return torch.cuda.is_available()

    return bool(ray.get(look.remote()))


def part(whole: int, me: str, others: Iterable[str]) -> int:
    """Return the equal part of `whole` trials that one of several sweeps may run at once. Earlier sweeps get the rest.

    Args:
        whole: number of trials that the cluster holds.
        me: id of this sweep's connection to Ray. A later connection has a larger id.
        others: ids of the other sweeps' connections.
    """
    ids = sorted([me, *others])
    return max(1, len(range(ids.index(me), whole, len(ids))))


def at_once(placed: Placement, resources: ResourcesSpec, say: Callable[[str], None]) -> Callable[[], int]:
    """Return a function that returns how many trials a sweep may run at once now.

    Sweeps that are on one cluster at the same time share it. No running trial is stopped when the number falls.

    Args:
        say: called when the number changes, with the names of the other sweeps.
    """
    found, looked = placed.concurrency, float("-inf")

    def now() -> int:
        nonlocal found, looked
        if placed.concurrency == 1 or resources.share != "auto":
            return placed.concurrency
        if time.monotonic() - looked >= _LOOK_S:
            others = other_drivers()
            before, looked = found, time.monotonic()
            found = min(placed.concurrency, part(placed.fits, this_driver(), others))
            if found != before:
                who = ", ".join(sorted(others.values()))
                shared = f"the cluster is shared with sweep(s) {who}" if who else "no other sweep is on the cluster"
                say(f"{found} trial(s) at once from now on: {shared}")
        return found

    return now
