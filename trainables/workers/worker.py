"""One trial as each of its workers runs it: epochs of training, then the measurements of the trained model.

Everything here runs in every worker of one process group. Only rank 0 reports and writes files.
"""

from __future__ import annotations

import functools
import time
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from edp.audit import not_read, read_audit
from edp.ledger import Ledger
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.measuring import (
    contents,
    earlier_epochs,
    final_metrics,
    permitted_metrics,
    privacy_metrics,
    valid_metrics,
)
from trainables.records.epochs import AUDIT, AUDIT_SCORES, EpochLog, read_ledger, write_ledger, write_model
from trainables.records.files import atomic_write, own_files, write_json
from trainables.records.job import EpochResult, Report, Stop, TrialFailed, TrialJob, TrialLeft, TrialResult
from trainables.records.journal import append_discarded
from trainables.records.pareto import Metrics, on_validation
from trainables.training.checkpoint import Checkpoint, load_checkpoint, restored_ledger, save_checkpoint
from trainables.training.process import new_model, own_memory, pick_device
from trainables.training.trainer import Trainer

T = TypeVar("T")


def run_trial(job: TrialJob, report: Report) -> TrialResult | None:
    """Train and measure one configuration, on every worker of the default process group at once.

    Args:
        report: called on every rank with the number of epochs done and their metrics. Rank 0's answer counts.

    Returns:
        The result on rank 0, None on the others. The caller discards the last epoch's checkpoint after it has the
        result. If it dies before, the job is measured again, but not trained again.

    Raises:
        TrialFailed: on all ranks, if gradients or the loss are not finite, or if the audit raises an alarm.
        TrialLeft: on all ranks, if `report` answered with a `Stop` that leaves the checkpoint.
    """
    own_files(job.output)  # a worker of a cluster does not inherit the driver's umask
    started = time.perf_counter()
    spec, rank = job.spec, dist.get_rank()
    device = pick_device(spec.training)
    corpus = EncodedCorpus.open(job.corpus).for_model(spec.model)
    if job.with_valid:
        corpus = corpus.with_valid_in_train()
    checkpoint = load_checkpoint(job.output, spec)
    trainer = _trainer(job, corpus, device, checkpoint)
    released = trainer.released
    # Predictions and answers are pickled; NCCL moves tensors of GPUs only. A new group for each trial costs memory that
    # PyTorch never gives back.
    objects = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
    seconds = checkpoint.seconds if checkpoint is not None else []
    # Without an attack or without privacy there is no trade-off that an earlier epoch could be better in.
    keep = job.keep if job.attack is not None and spec.training.method != "sgd" else 1
    log = EpochLog(job.output, keep, len(seconds), job.objectives) if rank == 0 else None
    dropped_before = 0.0
    if log is not None and log.curve:
        # The costs of a resumed trial include its epochs before the interruption.
        started -= log.curve[-1]["trial_seconds"]
        dropped_before = log.curve[-1].get("dropped_gradients", 0.0)
    stop: Stop | None = None
    usage = _Usage(device)
    every = spec.training.validate_every
    try:
        for epoch in range(len(seconds), spec.training.epochs):
            begin = time.perf_counter()
            train_loss = trainer.run_epoch(epoch)
            seconds.append(time.perf_counter() - begin)
            if (epoch + 1) % every and epoch + 1 < spec.training.epochs:
                continue
            valid = {} if job.with_valid else valid_metrics(released, corpus, job, device, objects)
            metrics = {"train_loss": train_loss, "epoch_seconds": float(np.mean(seconds[-every:]))} | valid
            metrics["dropped_gradients"] = dropped_before + trainer.dropped
            if log is not None:
                metrics |= privacy_metrics(trainer.guarantee, spec.edp.delta)
                metrics |= _cost(job, started, device) | usage.read()
                # The ledger comes first and the checkpoint last. A crash in between leaves a ledger that covers more
                # steps than the models beside it, never fewer.
                write_ledger(trainer.guarantee, job.output)
                log.add(epoch + 1, metrics, functools.partial(contents, released, corpus), trainer.guarantee)
                save_checkpoint(trainer.checkpoint(seconds), job.output)
            stop = _from_rank_0(report(epoch + 1, metrics), objects)
            if stop is not None:
                break
        if stop is not None and not stop.measure:
            raise TrialLeft(stop.reason)
        read = _read_audit(trainer, job, objects)
        final = final_metrics(released, corpus, job, device, objects)
        if rank == 0:
            write_model(job.output, contents(released, corpus), trainer.guarantee)
        earlier = earlier_epochs(released, corpus, job, device, objects, log)
        for one in earlier if not job.public else ():  # one training, and one ε
            one.metrics.update(read)
    except TrialFailed:
        if rank == 0:
            write_ledger(trainer.guarantee, job.output)  # with the steps that ran, in the place of those that were due
        raise
    finally:
        if objects is not dist.group.WORLD:
            dist.destroy_process_group(objects)
    if log is None or final is None:
        return None
    final |= read
    final |= on_validation(log.curve[-1])
    final |= privacy_metrics(trainer.guarantee, spec.edp.delta) | permitted_metrics(trainer.guarantee, spec.edp.delta)
    final |= _cost(job, started, device)
    final["dropped_gradients"] = dropped_before + trainer.dropped
    final["seconds_per_epoch"] = float(np.median(seconds))
    tags = {"device": device.type, "pretrained_source": released.pretrained_source}
    early = stop.reason if stop is not None and len(seconds) < spec.training.epochs else None
    return TrialResult(final, trainer.guarantee, tags, (*earlier, EpochResult(len(seconds), final)), early)


def _trainer(job: TrialJob, corpus: EncodedCorpus, device: torch.device, checkpoint: Checkpoint | None) -> Trainer:
    """Make a trainer, resumed from `checkpoint` if there is one; rank 0 writes the ledger ahead of its steps."""

    def write_ahead(ledger: Ledger) -> None:
        if dist.get_rank() == 0:
            write_ledger(ledger, job.output)

    model = new_model(job.spec, corpus, device, min(1.0, job.gpus_per_worker))
    ledger = restored_ledger(checkpoint, read_ledger(job.output))
    if ledger.discarded and dist.get_rank() == 0:
        append_discarded(job.output, ledger)  # the plan in the journal does not count them
    return Trainer(model, corpus, job.spec, device, checkpoint, ledger, write_ahead, job.public, job.gpus_per_worker)


class _Usage:
    """What this process, the first worker, uses of its machine. MLflow shows these metrics apart, by their prefix."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = time.perf_counter(), time.process_time()

    def read(self) -> Metrics:
        """Return its CPUs' use since the last call, in per cent of one CPU, and its memory, in MiB."""
        (wall, cpu), now = self._before, (time.perf_counter(), time.process_time())
        self._before = now
        found = {
            "system/worker_cpu_percent": 100 * (now[1] - cpu) / max(now[0] - wall, 1e-9),
            "system/worker_memory_mib": own_memory() / 2**20,
        }
        if self._device.type == "cuda":
            found["system/worker_gpu_memory_mib"] = torch.cuda.max_memory_allocated(self._device) / 2**20
        return found


def _cost(job: TrialJob, started: float, device: torch.device) -> Metrics:
    """Return the seconds since `started`: of the trial, of all its GPUs, and of all its workers."""
    total = time.perf_counter() - started
    workers = total * dist.get_world_size()
    return {
        "trial_seconds": total,
        "gpu_seconds": workers * job.gpus_per_worker if device.type == "cuda" else 0.0,
        "worker_seconds": workers,
    }


def _read_audit(trainer: Trainer, job: TrialJob, group: Any) -> Metrics:
    """Return the metrics of a training's own audit, on rank 0, which writes it beside the ledger; else {}."""
    found: dict[str, Any] = {}
    if dist.get_rank() == 0 and trainer.hook is not None:
        if trainer.audit is None:
            found = {"not_read": not_read(job.spec.edp) or "training.audit is off"}
        else:
            scores = trainer.audit.scores()
            with atomic_write(job.output / AUDIT_SCORES) as partial:
                scores.save(partial)
            found = asdict(read_audit(scores, trainer.guarantee, job.spec.edp.delta))
        write_json(job.output / AUDIT, found)
    alarm = _from_rank_0(found.pop("audit_alarm", None), group)
    if alarm is not None:
        raise TrialFailed(alarm)
    return {name: value for name, value in found.items() if name not in ("not_read", "layers")}


def _from_rank_0(value: T, group: Any) -> T:
    """Return rank 0's value on every rank."""
    values = [value]
    dist.broadcast_object_list(values, src=0, group=group)
    return values[0]
