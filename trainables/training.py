"""The training loop of one trial on one worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
from edp.ledger import Ledger
from edp.sampling import Indices, poisson_epoch, poisson_examples, shuffled_epoch
from trainables.checkpoint import (
    Checkpoint,
    restored_ledger,
    spec_key,
)
from trainables.encoding import EncodedCorpus
from trainables.job import TrialFailed
from trainables.models import JointModel
from trainables.optimizers import averaged, make_optimizer
from trainables.scales import layer_scales
from trainables.spec import TrainingSpec, TrialSpec


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
        self.low_precision = training.precision == "bfloat16"
        self.average = averaged(model, training.average) if training.average is not None else None
        if self.average is not None and checkpoint is not None and checkpoint.average is not None:
            self.average.load_state_dict(checkpoint.average)
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
        self.optimizer = make_optimizer(training, self.ddp.parameters(), self.hook)
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
            average=self.average.state_dict() if self.average is not None else None,
        )

    @property
    def released(self) -> JointModel:
        """The model that is measured, kept and released: the averaged one where there is one. Same on all workers."""
        model = self.average.module if self.average is not None else self.ddp.module
        assert isinstance(model, JointModel)
        return model

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
        if self.average is not None:
            self.average.update_parameters(self.ddp.module)
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
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.low_precision):
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
