"""Resources of trials: their placement in the cluster, checked before anything starts, and the sweep's share of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import ray

from edp.spec import UserError
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.run.capacity import Node, nodes_at_most, nodes_now
from trainables.config import TrainingSpec
from trainables.workers.client import GroupSpec, other_drivers, this_driver

_EXACT = 1e-9
"""Tolerance of sums of shares: 3 x 0.65 is more than 1.95."""

# More processes than this on a core spend their time on switching.
_MIN_CPUS_PER_WORKER = 0.1

TUNE_CPUS = 0.05
"""CPUs of Tune's own process of a trial."""

_LOOK_S = 2.0
"""Seconds between looks at the other sweeps on the cluster."""


@dataclass(frozen=True)
class Placement:
    """The placement of trials."""

    group: GroupSpec
    concurrency: int
    """Trials at once, at most: sweeps that share a cluster may run fewer (`at_once`)."""
    fits: int
    """Trials that the whole cluster holds."""
    mode: Literal["warm", "fresh"]
    note: str = ""
    """The resources that are left over, or still to come."""

    @property
    def line(self) -> str:
        """The plan in one line."""
        share = (
            f"{self.group.gpus_per_worker:g} GPU"
            if self.group.gpus_per_worker
            else f"{self.group.cpus_per_worker:.2g} CPU"
        )
        packed = " on one node" if self.group.one_node else ""
        how = "in one warm worker group" if self.mode == "warm" else f"each in a TorchTrainer of its own{packed}"
        note = f" ({self.note})" if self.note else ""
        workers = f"{self.group.workers} worker{'s' if self.group.workers > 1 else ''}"
        return f"{self.concurrency} trial(s) at once, {workers} each, {share} a worker, {how}{note}"


def placement(training: TrainingSpec, resources: ResourcesSpec, search: SearchSpec) -> Placement:
    """Fit trials of `training` into the cluster that Ray is connected to.

    Raises:
        UserError: if one trial can never fit, naming the setting that would make it.
    """
    nodes, here = nodes_at_most(resources), nodes_now()
    if training.device == "cpu":
        nodes, here = [Node(node.cpus, 0.0) for node in nodes], [Node(node.cpus, 0.0) for node in here]
    cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
    workers = training.workers
    per_gpu = _gpus_per_worker(training, resources, gpus)
    per_cpu = _cpus_per_worker(workers, resources, cpus)
    mode: Literal["warm", "fresh"]
    mode = resources.group if resources.group != "auto" else ("fresh" if per_gpu else "warm")
    fits, one_node = _fitting(nodes, workers, per_cpu, per_gpu)
    whole = 1 if mode == "warm" else fits
    fits = whole if resources.share == "auto" else max(1, int(whole * resources.share + 1e-6))
    concurrency = min(fits, search.trials) if search.concurrency == "auto" else search.concurrency
    if concurrency > fits:
        raise UserError(
            f"search.concurrency = {concurrency} does not fit: "
            + (
                "a warm worker group serves one trial at a time; allowed: 1, or --set resources.group=fresh"
                if mode == "warm"
                else f"{_where(resources, whole)} holds {fits} trial(s) of {workers} workers; allowed: at most {fits}"
            )
        )
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
    alone = mode == "fresh" and fits == whole  # what a share leaves is for others
    notes = [_idle(training, nodes, per_cpu, per_gpu, concurrency, search.trials)] if alone else []
    if len(nodes) > len(here):
        notes.append(f"{len(here)} of at most {len(nodes)} nodes are there; the others are asked for")
    return Placement(group, concurrency, whole, mode, "; ".join(note for note in notes if note))


def _where(resources: ResourcesSpec, whole: int) -> str:
    """Return the place where trials run, in words."""
    share = f"resources.share = {resources.share:g} of " if resources.share not in ("auto", 1.0) and whole > 1 else ""
    return f"{share}the cluster"


def _fitting(nodes: list[Node], workers: int, per_cpu: float, per_gpu: float) -> tuple[int, bool]:
    """Return how many trials run at once, and whether each fits on one node.

    At least one runs: the totals were checked before. Every trial leaves room for Tune's own process of it.
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
        cpus: of the cluster.
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
        gpus: of the cluster.
    """
    if resources.gpus_per_worker == "auto":
        # Where there are fewer GPUs than workers, workers share them; 1e-4 is Ray's smallest share.
        per_gpu = min(1.0, math.floor(gpus / training.workers * 1e4) / 1e4)
    else:
        per_gpu = resources.gpus_per_worker
    if training.device == "cuda" and not per_gpu:
        raise UserError(
            "training.device = cuda, but the cluster has no GPU; allowed: auto, cpu, or resources.scales_to, "
            "which says what the autoscaler may add"
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
    """Say how many GPUs would idle, and how many workers would use more: their number does not change the mechanism."""
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
    """Return whether a worker with a GPU sees a CUDA device: a test cluster's logical GPUs have none behind them."""

    @ray.remote(num_cpus=0, num_gpus=0.01)
    def look() -> bool:
        import torch

        return torch.cuda.is_available()

    return bool(ray.get(look.remote()))


def part(whole: int, me: str, others: Iterable[str]) -> int:
    """Return how many of `whole` trials one of several sweeps may run at once: equal parts, the rest to earlier sweeps.

    Args:
        me, others: ids of their connections to Ray, which grow. There may be no others.
    """
    ids = sorted([me, *others])
    return max(1, len(range(ids.index(me), whole, len(ids))))


def at_once(placed: Placement, resources: ResourcesSpec, say: Callable[[str], None]) -> Callable[[], int]:
    """Return a function that says how many trials a sweep may run at once now.

    Sweeps that are on one cluster at the same time share it. A running trial is not stopped when the number falls.

    Args:
        say: told when the number changes, and because of which sweeps.
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
