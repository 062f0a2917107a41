"""One trial as each of its workers runs it: epochs of private training, then what came of it.

Everything here runs in every worker of one process group; rank 0 alone reports and writes files.
"""

from __future__ import annotations

import functools
import time
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

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
from trainables.records.epochs import EpochLog, read_ledger, write_ledger, write_model
from trainables.records.job import EpochResult, Report, Stop, TrialFailed, TrialJob, TrialLeft, TrialResult
from trainables.records.pareto import Metrics
from trainables.training.checkpoint import Checkpoint, load_checkpoint, restored_ledger, save_checkpoint
from trainables.training.process import new_model, pick_device
from trainables.training.trainer import Trainer

T = TypeVar("T")


def run_trial(job: TrialJob, report: Report) -> TrialResult | None:
    """Train and measure one configuration, on every worker of the default process group at once.

    Args:
        report: called with the number of epochs done and their metrics, on every rank; rank 0's answer counts.

    Returns:
        The result on rank 0, None on the others. The caller discards the last epoch's checkpoint: if it dies before it
        has the result, the job is measured again, not trained again.

    Raises:
        TrialFailed: on all ranks alike, when gradients or the loss are not finite, or an audit contradicts the ledger.
        TrialLeft: on all ranks alike, when `report` answered to leave off.
    """
    started = time.perf_counter()
    spec, rank = job.spec, dist.get_rank()
    device = pick_device(spec.training)
    corpus = EncodedCorpus.open(job.corpus).for_model(spec.model)
    if job.with_valid:
        corpus = corpus.with_valid_in_train()
    checkpoint = load_checkpoint(job.output, spec)
    trainer = _trainer(job, corpus, device, checkpoint)
    released = trainer.released
    objects = dist.new_group(backend="gloo")  # pickled answers travel by CPU, also where gradients travel by NCCL
    seconds = checkpoint.seconds if checkpoint is not None else []
    keep = job.keep if job.attack is not None and spec.training.method != "sgd" else 1
    log = EpochLog(job.output, keep, len(seconds), job.objectives) if rank == 0 else None
    if log is not None and log.curve:
        started -= log.curve[-1]["trial_seconds"]  # what the epochs before an interruption took
    dropped_before = log.curve[-1].get("dropped_gradients", 0.0) if log is not None and log.curve else 0.0
    stop: Stop | None = None
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
            if log is not None:  # rank 0
                metrics |= privacy_metrics(trainer.ledger, spec.edp.delta) | _cost(job, started, device)
                write_ledger(trainer.ledger, job.output)  # first: it holds all that anything else tells of
                log.add(epoch + 1, metrics, functools.partial(contents, released, corpus), trainer.ledger)
                save_checkpoint(trainer.checkpoint(seconds), job.output)
            stop = _agreed(report(epoch + 1, metrics), objects)
            if stop is not None:
                break
        if stop is not None and not stop.measure:
            raise TrialLeft(stop.reason)
        final = final_metrics(released, corpus, job, device, objects, trainer.ledger)
        if rank == 0:
            write_model(job.output, contents(released, corpus), trainer.ledger)
        earlier = earlier_epochs(released, corpus, job, device, objects, log)
        _check_audits({len(seconds): final or {}} | {one.epoch: one.metrics for one in earlier}, trainer, objects)
    except TrialFailed:
        if rank == 0:
            write_ledger(trainer.ledger, job.output)
        raise
    finally:
        dist.destroy_process_group(objects)
    if rank != 0 or final is None:
        return None
    final |= privacy_metrics(trainer.ledger, spec.edp.delta) | permitted_metrics(trainer.ledger, spec.edp.delta)
    final |= _cost(job, started, device)
    final["dropped_gradients"] = dropped_before + trainer.dropped
    final["seconds_per_epoch"] = float(np.median(seconds))
    tags = {"device": device.type, "pretrained_source": released.pretrained_source}
    early = stop.reason if stop is not None and len(seconds) < spec.training.epochs else None
    return TrialResult(final, trainer.ledger, tags, (*earlier, EpochResult(len(seconds), final)), early)


def _trainer(job: TrialJob, corpus: EncodedCorpus, device: torch.device, checkpoint: Checkpoint | None) -> Trainer:
    """Start a trainer, or resume it from `checkpoint`; rank 0 writes the ledger before the steps that it covers."""
    written = read_ledger(job.output)

    def write_ahead(ledger: Ledger) -> None:
        if dist.get_rank() == 0:
            write_ledger(ledger, job.output)

    model = new_model(job.spec, corpus, device)
    ledger = restored_ledger(checkpoint, written)
    return Trainer(model, corpus, job.spec, device, checkpoint, ledger, write_ahead, job.gpus_per_worker)


def _cost(job: TrialJob, started: float, device: torch.device) -> Metrics:
    """Return the time spent since `started`, on all workers."""
    total = time.perf_counter() - started
    workers = total * dist.get_world_size()
    return {
        "trial_seconds": total,
        "gpu_seconds": workers * job.gpus_per_worker if device.type == "cuda" else 0.0,
        "worker_seconds": workers,
    }


def _check_audits(measured: dict[int, Metrics], trainer: Trainer, group: Any) -> None:
    """Raise TrialFailed on every rank where rank 0's metrics, by epochs done, have an ε above their ledger's."""
    words = None
    if any("epsilon_audited" in metrics for metrics in measured.values()):
        from trainables.measure.attacks.auditing import contradiction

        delta = trainer.spec.edp.delta
        found = (
            contradiction(metrics["epsilon_audited"], trainer.ledger.until(epoch), delta)
            for epoch, metrics in measured.items()
        )
        words = next((one for one in found if one is not None), None)
    words = _agreed(words, group)
    if words is not None:
        raise TrialFailed(words)


def _agreed(told_to_rank_0: T, group: Any) -> T:
    """Return rank 0's value on every rank."""
    told = [told_to_rank_0]
    dist.broadcast_object_list(told, src=0, group=group)
    return told[0]
