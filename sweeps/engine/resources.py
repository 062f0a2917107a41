"""Resources of trials: their placement in the cluster, checked before anything starts, and a sweep's share of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import ray

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.engine.capacity import Node, nodes_at_most, nodes_now
from trainables.config import TrainingSpec
from trainables.workers.client import GroupSpec, other_drivers, this_driver

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
    notes = [_idle(training, nodes, per_cpu, per_gpu, concurrency, search.trials)] if alone else []
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


def _idle(
    training: TrainingSpec, nodes: list[Node], per_cpu: float, per_gpu: float, concurrency: int, trials: int
) -> str:
    """Return how many GPUs would idle, and how many workers would use more, in words; "" if none would idle.

    The number of workers does not change the mechanism.
    """
    gpus = sum(node.gpus for node in nodes)
    if not per_gpu:
        return ""

    def used(workers: int) -> float:
        return min(_fitting(nodes, workers, per_cpu, per_gpu)[0], trials) * workers * per_gpu

    idle = gpus - concurrency * training.workers * per_gpu
    if idle < 1:
        return ""
    most = min(training.clips or round(gpus / per_gpu), round(gpus / per_gpu))
    divisors = [n for n in range(1, most + 1) if training.clips is None or training.clips % n == 0]
    best = max(divisors, key=lambda n: (used(n), n))
    hint = f"; --set training.workers={best} would use {used(best):g} of {gpus:g}" if used(best) > gpus - idle else ""
    return f"{idle:g} GPUs idle{hint}"


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
