"""What a recipe needs, held against what the cluster has, before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import ray

from edp.spec import UserError
from sweeps.spec import ResourcesSpec, SearchSpec
from trainables.spec import TrainingSpec
from trainables.trial import GroupSpec

# More processes than this on a core spend their time on switching.
_MIN_CPUS_PER_WORKER = 0.1

TUNE_CPUS = 0.05
"""What Tune's own process of a trial takes."""


@dataclass(frozen=True)
class Plan:
    """How trials are placed."""

    group: GroupSpec
    concurrency: int
    mode: Literal["warm", "fresh"]

    @property
    def line(self) -> str:
        """The plan in one line."""
        share = (
            f"{self.group.gpus_per_worker:g} GPU"
            if self.group.gpus_per_worker
            else f"{self.group.cpus_per_worker:.2g} CPU"
        )
        how = "in one warm worker group" if self.mode == "warm" else "each in a TorchTrainer of its own"
        return f"{self.concurrency} trial(s) at once, {self.group.workers} workers each, {share} a worker, {how}"


def plan(training: TrainingSpec, resources: ResourcesSpec, search: SearchSpec) -> Plan:
    """Fits trials of `training` into the cluster that Ray is connected to.

    Raises:
        UserError: when one trial can never fit, naming the setting that would make it.
    """
    total = ray.cluster_resources()
    cpus, gpus = total.get("CPU", 0.0), total.get("GPU", 0.0)
    if training.device == "cpu":
        gpus = 0.0
    workers = training.workers
    per_gpu = _gpus_per_worker(training, resources, gpus)
    usable = cpus - TUNE_CPUS
    if resources.cpus_per_worker == "auto":
        per_cpu, least = min(1.0, math.floor(usable / workers * 1e3) / 1e3), _MIN_CPUS_PER_WORKER
    else:
        per_cpu = least = resources.cpus_per_worker
    if per_cpu < least or workers * per_cpu > usable:
        raise UserError(
            f"training.workers = {workers} can never run: the cluster has {cpus:g} CPUs and a worker needs at "
            f"least {least:g}; allowed: at most {int(usable / least)} workers"
        )
    mode: Literal["warm", "fresh"]
    mode = resources.group if resources.group != "auto" else ("fresh" if per_gpu else "warm")
    fits = max(1, int(usable / (workers * per_cpu + TUNE_CPUS)))
    if per_gpu:
        fits = min(fits, int(gpus / (workers * per_gpu)))
    fits = 1 if mode == "warm" else fits
    concurrency = min(fits, search.trials) if search.concurrency == "auto" else search.concurrency
    if concurrency > fits:
        raise UserError(
            f"search.concurrency = {concurrency} does not fit: "
            + (
                "a warm worker group serves one trial at a time; allowed: 1, or --set resources.group=fresh"
                if mode == "warm"
                else f"the cluster holds {fits} trial(s) of {workers} workers; allowed: at most {fits}"
            )
        )
    backend: Literal["gloo", "nccl"] = "nccl" if per_gpu >= 1 and _has_real_gpus() else "gloo"
    group = GroupSpec(workers=workers, cpus_per_worker=per_cpu, gpus_per_worker=per_gpu, backend=backend)
    return Plan(group, concurrency, mode)


def _gpus_per_worker(training: TrainingSpec, resources: ResourcesSpec, gpus: float) -> float:
    """GPUs a worker takes, held against the `gpus` of the cluster."""
    if resources.gpus_per_worker == "auto":
        # Where there are fewer GPUs than workers, workers share them; 1e-4 is Ray's smallest share.
        per_gpu = min(1.0, math.floor(gpus / training.workers * 1e4) / 1e4)
    else:
        per_gpu = resources.gpus_per_worker
    if training.device == "cuda" and not per_gpu:
        raise UserError("training.device = cuda, but the cluster has no GPU; allowed: auto, cpu")
    if per_gpu > 0 and training.workers * per_gpu > gpus:
        most = int(gpus / per_gpu)
        raise UserError(
            f"training.workers = {training.workers} at resources.gpus_per_worker = {per_gpu:g} can never run: the "
            f"cluster has {gpus:g} GPUs; allowed: "
            + (f"at most {most} workers" if most else "resources.gpus_per_worker=0, which trains on CPU")
        )
    return per_gpu


def _has_real_gpus() -> bool:
    """Whether a worker with a GPU sees a CUDA device: logical GPUs of a test cluster have none behind them."""

    @ray.remote(num_cpus=0, num_gpus=0.01)
    def look() -> bool:
        import torch

        return torch.cuda.is_available()

    return bool(ray.get(look.remote()))
