"""One trial as each of its workers runs it: epochs of private training, then what came of it.

Everything here runs in every worker of one process group; rank 0 alone reports and writes files.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from edp.epsilon import epsilon, epsilon_paper
from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
from edp.ledger import Ledger
from edp.sampling import Indices, poisson_epoch, poisson_examples, shuffled_epoch
from trainables.answers import Answers, collect_answers, utility_metrics
from trainables.attacks.canary import audit, canary_scores, read_coins
from trainables.attacks.roc import auc
from trainables.attacks.shadow import attack_metrics, attack_scores, load_attack, membership_indices
from trainables.checkpoint import (
    Checkpoint,
    discard_checkpoint,
    load_checkpoint,
    read_ledger,
    restored_ledger,
    save_checkpoint,
    spec_key,
    write_ledger,
)
from trainables.encoding import EncodedCorpus
from trainables.epochs import EpochLog, Metrics, epoch_folder, write_model
from trainables.models import JointModel, build_model
from trainables.scales import layer_scales
from trainables.spec import TrainingSpec, TrialSpec

# An epoch's attack costs as much as answering twice as many utterances, and its AUC is good to about 0.01 then.
_VALID_MEMBERS = 2_000


@dataclass(frozen=True)
class Stop:
    """A trial is to end at the end of this epoch."""

    reason: str
    measure: bool = True
    """Whether it ends well, measured as it stands; else it leaves its checkpoint, to go on from another time."""


Report = Callable[[int, Metrics], Stop | None]


class TrialFailed(RuntimeError):
    """This trial cannot go on, and every worker knows it: the group may serve the next one."""


class TrialLeft(TrialFailed):
    """The trial was told to leave off; its checkpoint is there to go on from."""


@dataclass(frozen=True)
class TrialJob:
    """What a worker group needs to know of a trial: plain data, small enough to send by value."""

    spec: TrialSpec
    corpus: Path
    """Folder of the encoded corpus, seen by all workers."""
    output: Path
    """Folder for model, ledger and attack features, seen by all workers."""
    attack: Path | None = None
    """A fitted attack; None: no membership inference is measured."""
    coins: Path | None = None
    """Which canaries are trained on; read when training is over. None: no audit."""
    with_valid: bool = False
    """Whether the validation utterances are trained on too; nothing is validated then."""
    keep: int = 1
    """How many epochs' models are kept and measured, the last among them. Takes an attack, and a private method."""
    gpus_per_worker: float = 1.0
    """What a worker on a GPU has of it: its share of the cost."""


@dataclass(frozen=True)
class EpochResult:
    """A kept epoch: how many epochs were done then, and what its model comes to on the test split."""

    epoch: int
    metrics: Metrics


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial. `metrics` are of the last epoch on the test split; see DESIGN for their names."""

    metrics: Metrics
    ledger: Ledger
    tags: dict[str, str]
    epochs: tuple[EpochResult, ...] = ()
    """The kept epochs, the last one last."""
    stopped: str | None = None
    """Why the trial ended before its last planned epoch."""


def run_trial(job: TrialJob, report: Report) -> TrialResult | None:
    """Trains and measures one configuration, on every worker of the default process group at once.

    Args:
        report: called with the number of epochs done and their metrics, on every rank; rank 0's answer counts.

    Returns:
        The result on rank 0, None on the others.

    Raises:
        TrialFailed: on all ranks alike, when gradients or the loss are not finite.
        TrialLeft: on all ranks alike, when `report` answered to leave off.
    """
    started = time.perf_counter()
    spec, rank = job.spec, dist.get_rank()
    device = pick_device(spec.training)
    corpus = EncodedCorpus.open(job.corpus)
    if job.with_valid:
        corpus = corpus.with_valid_in_train()
    model = build_model(spec.model, corpus.labels, seed=spec.training.seed, vocabulary_size=corpus.vocabulary_size).to(
        device
    )
    checkpoint = load_checkpoint(job.output, spec)
    trainer = Trainer(model, corpus, spec, device, checkpoint)
    objects = dist.new_group(backend="gloo")  # pickled answers travel by CPU, also where gradients travel by NCCL
    seconds = checkpoint.seconds if checkpoint is not None else []
    keep = job.keep if job.attack is not None and spec.training.method != "sgd" else 1
    log = EpochLog(job.output, keep, len(seconds)) if rank == 0 else None
    if log is not None and log.curve:
        started -= log.curve[-1]["trial_seconds"]  # what the epochs before an interruption took
    stop: Stop | None = None
    try:
        for epoch in range(len(seconds), spec.training.epochs):
            begin = time.perf_counter()
            train_loss = trainer.run_epoch(epoch)
            seconds.append(time.perf_counter() - begin)
            valid = {} if job.with_valid else _valid_metrics(model, corpus, job, device, objects)
            metrics = {"train_loss": train_loss, "epoch_seconds": seconds[-1]} | valid
            if log is not None:  # rank 0
                metrics |= privacy_metrics(trainer.ledger, spec.edp.delta) | _cost(job, started, device)
                log.add(metrics, functools.partial(_contents, model, corpus), trainer.ledger)
                save_checkpoint(trainer.checkpoint(seconds), job.output)
                write_ledger(trainer.ledger, job.output)
            stop = _agreed(report(epoch + 1, metrics), objects)
            if stop is not None:
                break
        if stop is not None and not stop.measure:
            raise TrialLeft(stop.reason)
        final = _final_metrics(model, corpus, job, device, objects)
        if rank == 0:
            write_model(job.output, _contents(model, corpus), trainer.ledger)
        earlier = _earlier_epochs(model, corpus, job, device, objects, log)
    except TrialFailed:
        if rank == 0:
            write_ledger(trainer.ledger, job.output)
        raise
    finally:
        dist.destroy_process_group(objects)
    if rank != 0 or final is None:
        return None
    final |= privacy_metrics(trainer.ledger, spec.edp.delta) | _cost(job, started, device)
    final["seconds_per_epoch"] = float(np.median(seconds))
    tags = {"device": device.type, "pretrained_source": model.pretrained_source}
    discard_checkpoint(job.output)
    early = stop.reason if stop is not None and len(seconds) < spec.training.epochs else None
    return TrialResult(final, trainer.ledger, tags, (*earlier, EpochResult(len(seconds), final)), early)


def _cost(job: TrialJob, started: float, device: torch.device) -> Metrics:
    """What was spent since `started`, on all workers."""
    total = time.perf_counter() - started
    workers = total * dist.get_world_size()
    return {
        "trial_seconds": total,
        "gpu_seconds": workers * job.gpus_per_worker if device.type == "cuda" else 0.0,
        "worker_seconds": workers,
    }


def pick_device(training: TrainingSpec) -> torch.device:
    """This worker's device. Ray shows each worker only its own GPU, so the local rank picks among what is visible."""
    wanted = training.device
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise TrialFailed("training.device = cuda, but this worker sees no CUDA device")
    index = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def privacy_metrics(ledger: Ledger, delta: float) -> Metrics:
    """Both epsilons of what was executed so far, and the δ they hold for."""
    return {"epsilon": epsilon(ledger, delta), "epsilon_paper": epsilon_paper(ledger, delta), "delta": delta}


class Trainer:
    """The training loop of one trial on one worker."""

    def __init__(
        self,
        model: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if checkpoint is not None:
            model.load_state_dict(checkpoint.model)
        self.corpus, self.spec, self.device = corpus, spec, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.examples = corpus.size("train")
        training = spec.training
        self.step = checkpoint.step if checkpoint is not None else 0
        self.hook: EDPHook | None = None
        if training.method == "sgd":
            self.ddp = DistributedDataParallel(model, forward_sync_buffers=False)
        else:
            if checkpoint is not None:
                alpha, ledger = checkpoint.alpha, restored_ledger(checkpoint)
            else:
                alpha, ledger = layer_scales(model, corpus, spec, device)
            self.ddp = one_bucket_ddp(model)
            self.hook = EDPHook(
                self.ddp,
                spec.edp,
                micro_batches=training.clips,
                single_example=training.batch_size == training.clips,
                rate=min(1.0, training.batch_size / self.examples),
                ledger=ledger,
                alpha=alpha,
            )
        self.optimizer = torch.optim.Adam(self.ddp.parameters(), lr=training.learning_rate)
        if checkpoint is not None:
            self.optimizer.load_state_dict(checkpoint.optimizer)
        self._sampler_key = self._shared_key() if spec.edp.sampling == "poisson" else None

    def checkpoint(self, seconds: list[float]) -> Checkpoint:
        """The state after the epochs that took `seconds` each."""
        return Checkpoint(
            spec=spec_key(self.spec),
            step=self.step,
            seconds=list(seconds),
            ledger=self.ledger.model_dump_json(),
            alpha=self.hook.alpha if self.hook is not None else None,
            model=self.ddp.module.state_dict(),
            optimizer=self.optimizer.state_dict(),
        )

    @property
    def ledger(self) -> Ledger:
        """What touched the weights so far."""
        return self.hook.ledger if self.hook is not None else Ledger(private=False)

    def run_epoch(self, epoch: int) -> float:
        """One epoch; returns the mean training loss of an utterance.

        Raises:
            TrialFailed: on every rank, when a gradient or the loss was not finite.
        """
        self.ddp.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.spec.training.learning_rate_in(epoch)
        if self.hook is not None:
            self.hook.begin_epoch(epoch)
        loss, seen = torch.zeros((), device=self.device), 0
        try:
            for dealt in self.steps_of(epoch):
                seen += sum(len(indices) for share in dealt for indices in share)
                loss += self.train_step(dealt)
            if self.hook is not None:
                self.hook.check()
        except NonFiniteGradient as error:
            raise TrialFailed(str(error)) from error
        dist.all_reduce(loss)
        mean = float(loss) / max(1, seen)
        if not np.isfinite(mean):
            raise TrialFailed(f"the training loss is {mean} in epoch {epoch}: the learning rate may be too high")
        return mean

    def train_step(self, dealt: list[list[Indices]]) -> torch.Tensor:
        """One step of the weights; returns the sum of this worker's utterances' losses.

        Raises:
            NonFiniteGradient: on a CPU, which need not wait for it.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(dealt)
        if self.hook is not None and self.device.type == "cpu":
            self.hook.check()
        self.optimizer.step()
        self.step += 1
        return loss

    def steps_of(self, epoch: int) -> Iterator[list[list[Indices]]]:
        """Each step's micro-batches, a list for each worker."""
        training = self.spec.training
        sizes = {"batch_size": training.batch_size, "micro_batches": training.clips}
        if self._sampler_key is None:
            steps = shuffled_epoch(self.examples, seed=training.seed, epoch=epoch, **sizes)
        else:
            # By epoch, so that a run that goes on from a checkpoint draws what it would have drawn.
            rng = np.random.default_rng([*self._sampler_key, epoch])
            if self.hook is not None and self.hook.any_number:
                return poisson_examples(self.examples, batch_size=training.batch_size, workers=self.world, rng=rng)
            steps = poisson_epoch(self.examples, rng=rng, **sizes)
        share = training.clips // self.world
        return ([step[i : i + share] for i in range(0, training.clips, share)] for step in steps)

    def _backward(self, dealt: list[list[Indices]]) -> torch.Tensor:
        """Gradients of this worker's share of a step; returns the sum of its utterances' losses."""
        mine = dealt[self.rank] or [np.zeros(0, dtype=np.int64)]
        first = self.rank * len(mine)
        if self.hook is None:
            # DDP averages over workers: this makes it the mean over the utterances of the whole batch.
            weight = self.world / max(1, sum(len(indices) for share in dealt for indices in share))
            return self._backward_one(np.concatenate(mine), weight, first, reduce=True)
        total = torch.zeros((), device=self.device)
        for i, indices in enumerate(mine):
            last = i == len(mine) - 1
            # Where micro-batches have no number of their own, their only utterance has one.
            stream = int(indices[0]) if self.hook.any_number and len(indices) else first + i
            total += self._backward_one(indices, 1 / max(1, len(indices)), stream, reduce=last)
            if not last:
                self.hook.take()
        return total

    def _backward_one(self, indices: Indices, weight: float, stream: int, *, reduce: bool) -> torch.Tensor:
        """Backpropagates `weight` times the summed loss of `indices`, sorted by length and in sub-chunks."""
        if len(indices) == 0:
            # Every worker must reach the all-reduce: an empty micro-batch is one example of weight 0.
            indices, weight = np.zeros(1, dtype=np.int64), 0.0
        # Dropout by micro-batch and step, so that every number of workers draws the same; noise has its own streams.
        torch.manual_seed(_mix(self.spec.training.seed, self.step, stream))
        order = np.argsort(self.corpus.lengths("train")[indices], kind="stable")
        chunks = np.array_split(indices[order], min(self.spec.training.sub_chunks, len(indices)))
        total = torch.zeros((), device=self.device)
        for j, chunk in enumerate(chunks):
            with nullcontext() if reduce and j == len(chunks) - 1 else self.ddp.no_sync():
                loss = self.ddp(self.corpus.batch("train", chunk).to(self.device)).sum()
                (loss * weight).backward()
            if weight > 0:
                total += loss.detach()
        return total

    def _shared_key(self) -> list[int]:
        """What all workers draw from and nobody else knows: Poisson's amplification needs a secret draw."""
        if self.spec.edp.reproducible_noise is not None:
            return [self.spec.edp.reproducible_noise, 0x504F49]
        entropy: list[Any] = [np.random.SeedSequence().entropy]
        dist.broadcast_object_list(entropy, src=0)
        return [int(entropy[0])]


def _mix(*parts: int) -> int:
    """63 bits that depend on all of `parts`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1


def _valid_metrics(
    model: JointModel, corpus: EncodedCorpus, job: TrialJob, device: torch.device, group: Any
) -> Metrics:
    """Utility on the validation split and, with an attack, how well it tells that split from as many of the training
    utterances; {} on ranks other than 0."""
    everybody: dict[str, Any] = {"device": device, "group": group, "features": job.attack is not None}
    valid = collect_answers(model, corpus, "valid", None, **everybody)
    found = {f"valid_{k}": v for k, v in utility_metrics(valid, corpus).items()} if valid is not None else {}
    if job.attack is None:
        return found
    members, non_members = membership_indices(
        corpus.size("train") - corpus.planted, corpus.size("valid"), seed=job.spec.corpus.seed, at_most=_VALID_MEMBERS
    )
    train = collect_answers(model, corpus, "train", members, **everybody)
    if valid is not None and train is not None:
        attack = load_attack(job.attack)
        inside, outside = _seen(train)[0], _seen(valid)[0][non_members]
        found["valid_mia_auc"] = auc(attack_scores(attack, inside), attack_scores(attack, outside))
    return found


def _agreed(stop: Stop | None, group: Any) -> Stop | None:
    """What rank 0 was told, on every rank."""
    told = [stop]
    dist.broadcast_object_list(told, src=0, group=group)
    return told[0]


def _earlier_epochs(
    model: JointModel, corpus: EncodedCorpus, job: TrialJob, device: torch.device, group: Any, log: EpochLog | None
) -> list[EpochResult]:
    """Measures the kept epochs before the last as the last was; on rank 0. Leaves one of their weights in `model`.

    Their costs are those of training so far, without the measuring.
    """
    kept = [log.finish() if log is not None else []]
    dist.broadcast_object_list(kept, src=0, group=group)
    measured = []
    for epoch in kept[0]:
        folder = epoch_folder(job.output, epoch)
        saved = torch.load(folder / "model.pt", map_location="cpu", weights_only=True)
        model.load_state_dict(saved["state_dict"])
        found = _final_metrics(model, corpus, replace(job, output=folder), device, group)
        if found is not None and log is not None:
            ledger = read_ledger(folder)
            assert ledger is not None
            found |= privacy_metrics(ledger, job.spec.edp.delta)
            found |= {name: log.curve[epoch - 1][name] for name in ("trial_seconds", "gpu_seconds", "worker_seconds")}
            found["seconds_per_epoch"] = float(np.median([metrics["epoch_seconds"] for metrics in log.curve[:epoch]]))
            measured.append(EpochResult(epoch, found))
    return measured


def _final_metrics(
    model: JointModel, corpus: EncodedCorpus, job: TrialJob, device: torch.device, group: Any
) -> Metrics | None:
    """Test metrics and, with an attack, membership inference; rank 0 writes what the attack would see."""
    everybody: dict[str, Any] = {"device": device, "group": group, "features": True}
    test = collect_answers(model, corpus, "test", None, **everybody)
    real = corpus.size("train") - corpus.planted
    members, non_members = membership_indices(real, corpus.size("test"), seed=job.spec.corpus.seed)
    train = collect_answers(model, corpus, "train", members, **everybody)
    canaries = collect_answers(model, corpus, "canaries", None, **everybody) if corpus.size("canaries") else None
    if test is None or train is None:
        return None
    metrics = utility_metrics(test, corpus)
    (inside, inside_losses), (outside, outside_losses) = _seen(train), _seen(test)
    outside, outside_losses = outside[non_members], outside_losses[non_members]
    seen = {
        "members": inside,
        "non_members": outside,
        "member_losses": inside_losses,
        "non_member_losses": outside_losses,
    }
    if canaries is not None and job.coins is not None:
        seen["canary_losses"] = _seen(canaries)[1]
        metrics |= audit(canary_scores(seen["canary_losses"]), read_coins(job.coins), job.spec.edp.delta).metrics()
    job.output.mkdir(parents=True, exist_ok=True)
    np.savez(job.output / "attack_features.npz", **seen)
    if job.attack is not None:
        attack = load_attack(job.attack)
        metrics |= attack_metrics(attack_scores(attack, inside), attack_scores(attack, outside))
    return metrics


def _seen(answers: Answers) -> tuple[Any, Any]:
    """Features (n, F) and losses (n,) of answers that were collected with them."""
    assert answers.features is not None
    assert answers.losses is not None
    return answers.features, answers.losses


def _contents(model: torch.nn.Module, corpus: EncodedCorpus) -> dict[str, Any]:
    """What `model.pt` holds."""
    return {"state_dict": {k: v.cpu() for k, v in model.state_dict().items()}, "labels": corpus.labels.to_dict()}
