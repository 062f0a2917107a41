"""The training loop of one trial on one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from edp.audit import Audit, not_read
from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
from edp.keyed import derived_key
from edp.ledger import Ledger, planned_ledger
from edp.per_example import GradientRecorder, UnsupportedLayer, record_per_example
from edp.sampling import Step, steps_at_rate
from edp.spec import UserError
from trainables.config import TrainingSpec, TrialSpec
from trainables.features.device import in_bfloat16
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.features.token_features import Batch
from trainables.models import JointModel
from trainables.models.trainable import checkpoint_layers
from trainables.records.job import TrialFailed
from trainables.training.batches import BatchSampler, Chunk, Chunker, dropout_keys, mixed, run_key
from trainables.training.checkpoint import Checkpoint, spec_key
from trainables.training.scales import layer_scales

_DIVERGED = 1e6
"""Absolute value of a weight from which on training counts as diverged."""


class Trainer:
    """The training loop of one trial on one worker.

    Args:
        model: a new model (`trainables.training.process.new_model`); a checkpoint's weights replace its own.
        corpus: the encoded corpus, whose training split is trained on.
        checkpoint: a checkpoint of the same configuration to resume from; None: start anew.
        ledger: the ledger to continue (`restored_ledger`); None: no step was executed yet.
        write_ahead: called with the ledger that includes the next epochs, before the first of them runs.
        public: True if the corpus is public (`TrialJob.public`).
        gpu_share: this worker's share of its GPU, whose memory limits the size of a chunk.

    Raises:
        TrialFailed: if model, mechanism and corpus do not fit together.
    """

    check_mixing = True
    """True if the hook checks that the model does not mix examples (`edp.mixing`)."""
    carries_audit = True
    """True if a private training reads its own noise, unless `training.audit` is off (`edp.audit`)."""

    def __init__(
        self,
        model: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        ledger: Ledger | None = None,
        write_ahead: Callable[[Ledger], None] = lambda _: None,
        public: bool = False,
        gpu_share: float = 1.0,
    ) -> None:
        if checkpoint is not None:
            model.load_state_dict(checkpoint.model)
        self.key = spec_key(spec)
        self.corpus, self.spec, self.device = corpus, spec, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        training = spec.training
        self.run_key = run_key(spec)
        self.audit = self._new_audit(checkpoint)
        """The audit of a private training; None without one, or if the audit does not read its mechanism."""
        with _trials_mistake():
            canaries = self.audit.canaries if self.audit is not None else 0
            self.sampler = BatchSampler(corpus, spec, self.world, self.run_key, canaries)
        self._ids = corpus.ids("example")
        self.step = checkpoint.step if checkpoint is not None else 0
        self.planned = self._whole_plan() if training.method != "sgd" and not public else Ledger()
        self._write_ahead, self._written_until = lambda begun: write_ahead(begun.completed(self.planned)), 0
        self.low_precision = in_bfloat16(training.precision, device)
        self.average = averaged(model, training.average) if training.average is not None else None
        if self.average is not None and checkpoint is not None and checkpoint.average is not None:
            self.average.load_state_dict(checkpoint.average)
        self.hook: EDPHook | None = None
        self.dropped = 0
        """Number of gradients that were not finite, over all workers and the epochs run here (`EDPHook.dropped`)."""
        self.recorder = self._record_per_example(model)
        if training.gradient_checkpointing:
            checkpoint_layers(model)
        self._chunker = Chunker(model, corpus, spec, self.sampler, device, gpu_share)
        if training.method == "sgd":
            self.ddp = DistributedDataParallel(model, forward_sync_buffers=False)
        else:
            ledger = ledger if ledger is not None else Ledger()
            ledger = ledger.model_copy(update={"most_of_a_user": corpus.most_of_a_user})
            if checkpoint is not None:
                alpha = checkpoint.alpha
            else:
                with _trials_mistake():
                    alpha, release = layer_scales(model, corpus, spec, device, self.run_key, ledger, self._write_ahead)
                ledger = ledger.model_copy(update={"alpha_release": release})
            self.ddp = one_bucket_ddp(model)
            with _trials_mistake():
                self.hook = EDPHook(
                    self.ddp,
                    spec.edp,
                    micro_batches=self.sampler.clips,
                    single_example=self.sampler.single_example,
                    rate=self.sampler.rate,
                    ledger=ledger,
                    alpha=alpha,
                    recorder=self.recorder,
                    clip=checkpoint.clip if checkpoint is not None else None,
                    check_mixing=self.check_mixing,
                    audit=self.audit,
                )
        self.optimizer = make_optimizer(training, self.ddp.parameters())
        if checkpoint is not None:
            self.optimizer.load_state_dict(checkpoint.optimizer)

    def _new_audit(self, checkpoint: Checkpoint | None) -> Audit | None:
        training = self.spec.training
        if training.method == "sgd" or not (training.audit and self.carries_audit) or not_read(self.spec.edp):
            return None
        state = checkpoint.audit if checkpoint is not None else None
        return Audit(derived_key(self.run_key, "audit"), state=state)

    def _record_per_example(self, model: JointModel) -> GradientRecorder | None:
        """Return a recorder if this worker clips several micro-batches a step; one alone is clipped by its gradient."""
        training = self.spec.training
        if training.method == "sgd" or (self.sampler.clips == self.world and self.spec.edp.sampling == "shuffle"):
            return None
        with _trials_mistake():
            model.recorder = record_per_example(model)
        return model.recorder

    def checkpoint(self, seconds: list[float]) -> Checkpoint:
        """Return the checkpoint after the epochs done, which took `seconds` each."""
        return Checkpoint(
            spec=self.key,
            step=self.step,
            seconds=list(seconds),
            ledger=self.ledger.model_dump_json(),
            alpha=self.hook.alpha if self.hook is not None else None,
            clip=self.hook.clip_state if self.hook is not None else None,
            model=self.ddp.module.state_dict(),
            optimizer=self.optimizer.state_dict(),
            average=self.average.state_dict() if self.average is not None else None,
            audit=self.audit.state() if self.audit is not None else None,
        )

    @property
    def released(self) -> JointModel:
        """The model that is measured, kept and released, the same on all workers: the average if there is one."""
        model = self.average.module if self.average is not None else self.ddp.module
        assert isinstance(model, JointModel)
        return model

    @property
    def ledger(self) -> Ledger:
        """The ledger of the steps that have changed the weights so far."""
        if self.hook is not None:
            return self.hook.ledger
        return Ledger(private=False, most_of_a_user=self.corpus.most_of_a_user)

    @property
    def guarantee(self) -> Ledger:
        """The ledger that states the ε of the training, and of each of its epochs.

        On a private corpus all planned epochs count, from the first step on. Whatever ends a training early, such as a
        rule or a person, has seen figures of its epochs.
        """
        return self.ledger.completed(self.planned)

    def _whole_plan(self) -> Ledger:
        """Return the ledger of the training if it runs to its end."""
        with _trials_mistake():
            return planned_ledger(
                self.spec.edp,
                epochs=self.spec.training.epochs,
                micro_batches=self.sampler.clips,
                steps_per_epoch=steps_at_rate(self.sampler.rate),
                rate=self.sampler.rate,
                single_example=self.sampler.single_example,
            )

    def run_epoch(self, epoch: int) -> float:
        """Run one epoch; return the mean training loss of an utterance.

        Raises:
            TrialFailed: on every rank, if training has diverged. With a private method only the weights decide this,
                since they are private; a loss that is not finite would reveal something about its example.
        """
        self.ddp.train()
        self._plan(epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.spec.training.learning_rate_in(epoch)
        loss, seen = torch.zeros((), device=self.device), 0
        try:
            for step in self.steps_of(epoch):
                seen += sum(len(indices) for share in step for indices in share)
                loss += self.train_step(step)
            if self.hook is not None:
                self.hook.check()
        except NonFiniteGradient as error:
            raise TrialFailed(str(error)) from error
        dropped = self.hook.dropped if self.hook is not None else 0
        total = torch.stack([loss, torch.tensor(float(dropped), device=self.device)])
        dist.all_reduce(total)
        mean, self.dropped = float(total[0]) / max(1, seen), round(float(total[1]))
        if self.hook is None and not np.isfinite(mean):
            raise TrialFailed(f"the training loss is {mean} in epoch {epoch}: {self._why_diverged(epoch)}")
        if self.hook is not None and not (largest := _largest(self.ddp.module)) < _DIVERGED:
            raise TrialFailed(f"a weight is {largest:.3g} in epoch {epoch}: {self._why_diverged(epoch)}")
        return mean

    def _why_diverged(self, epoch: int) -> str:
        return f"the learning rate may be too high ({self.spec.training.learning_rate_in(epoch):g})"

    def _plan(self, epoch: int) -> None:
        """Write the ledger with the epochs until the next checkpoint, before the first of them runs.

        A process that dies in one of them then leaves a ledger that already counts its steps.
        """
        if self.hook is None or epoch < self._written_until:
            return
        every = self.spec.training.validate_every
        self._written_until = min(self.spec.training.epochs, (epoch // every + 1) * every)
        self._write_ahead(self.hook.planned(range(epoch, self._written_until)))

    def train_step(self, step: Step) -> torch.Tensor:
        """Take one step of `steps_of`; return the sum of the losses of this worker's utterances.

        Raises:
            NonFiniteGradient: on a CPU. On a GPU the check waits until the epoch's end, because it synchronises.
        """
        loss = self._backward(step)
        if self.hook is not None and self.device.type == "cpu":
            self.hook.check()
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.ddp.module)
        self.step += 1
        return loss

    def steps_of(self, epoch: int) -> Iterator[Step]:
        """Yield the steps of an epoch. Each must be taken before the next is asked for."""
        drawn = self.sampler.epoch(epoch)
        return iter(drawn) if self.hook is None else self.hook.steps(drawn)

    def _backward(self, step: Step) -> torch.Tensor:
        """Compute the gradients of this worker's share of a step, chunk by chunk; return the sum of its losses."""
        mine = step[self.rank]
        if self.hook is None:
            mine = [np.concatenate(mine)]
        share = sum(len(indices) for indices in mine)
        cut = self._chunker.chunk(mine, self.step)
        # The recorder overwrites the gradients of the last step, so they need not be set to zero.
        if self.recorder is None or any(chunk.micro_batches < 2 for chunk, _ in cut):
            self.optimizer.zero_grad(set_to_none=True)
        # DDP averages over workers. This factor turns that into the mean over the utterances of the whole batch.
        everybody = max(1, sum(len(indices) for other in step for indices in other))
        factor = 1.0 if self.hook is not None else self.world * share / everybody
        total = torch.zeros((), device=self.device)
        for i, (chunk, batch) in enumerate(cut):
            last = i == len(cut) - 1
            total += self._backward_chunk(chunk, batch, factor, reduce=last)
            if self.hook is not None and chunk.ends and not last:
                self.hook.accumulate()
        return total

    def _backward_chunk(self, chunk: Chunk, kept: Batch | None, factor: float, *, reduce: bool) -> torch.Tensor:
        """Backpropagate `factor` times the weighted losses of a chunk; return the sum of its losses.

        Args:
            kept: the utterances of the chunk, if they were kept.
        """
        indices = chunk.indices
        # Dropout depends on the run's key, the step and the utterance (`trainables.models.dropout`): the other
        # utterances must not change the gradient of one. cuDNN's LSTM draws by this seed, which is harmless: it runs
        # chunks of one micro-batch only, which is clipped as a whole.
        torch.manual_seed(mixed(self.run_key, self.step, bytes(self._ids[indices[0]])))
        key_b = dropout_keys(self.run_key, self.step, self._ids[indices]).to(self.device)
        batch = replace(kept or self._chunker.batch(indices), key_b=key_b)
        weight_b = torch.from_numpy(chunk.weight_b * np.float32(factor)).to(self.device)
        with ExitStack() as stack:
            if not reduce:
                stack.enter_context(self.ddp.no_sync())
            with ExitStack() as forward:
                if self.recorder is not None and chunk.micro_batches > 1:
                    micro_batch_b = torch.from_numpy(chunk.micro_batch_b)
                    forward.enter_context(self.recorder.examples(micro_batch_b, chunk.micro_batches))
                forward.enter_context(torch.autocast(self.device.type, torch.bfloat16, enabled=self.low_precision))
                loss_b = self.ddp(batch)
            (loss_b * weight_b).sum().backward()
        loss_b = loss_b.detach()
        if self.hook is not None:  # the hook has dropped the gradients of losses that are not finite
            loss_b = loss_b.where(loss_b.isfinite(), 0.0)
        return (loss_b * (weight_b > 0)).sum()


@contextmanager
def _trials_mistake() -> Iterator[None]:
    """Raise TrialFailed for errors of the trial's configuration, which every worker raises at once."""
    try:
        yield
    except UnsupportedLayer as error:
        raise TrialFailed(f"model: {error}") from error
    except UserError as error:
        raise TrialFailed(str(error)) from error


def _largest(model: torch.nn.Module) -> float:
    """Return the largest absolute value of a trainable parameter, NaN if one is NaN."""
    norms = torch._foreach_norm([p.detach() for p in model.parameters() if p.requires_grad], torch.inf)
    return float(torch.stack([norm.float() for norm in norms]).max())


MOMENTUM = 0.9
WEIGHT_DECAY = 0.01


def make_optimizer(training: TrainingSpec, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimiser of `training.optimizer`."""
    rate = training.learning_rate
    match training.optimizer:  # with `fused`, a step of Adam takes a third to a fifth of the time, on CPUs too
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, fused=True)
        case "adamw":
            decay = WEIGHT_DECAY if training.weight_decay is None else training.weight_decay
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=True)
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate, fused=True)
        case "momentum":
            momentum = MOMENTUM if training.momentum is None else training.momentum
            return torch.optim.SGD(parameters, lr=rate, momentum=momentum, fused=True)


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """Return a copy of `model` for the exponential moving average of its weights; `update_parameters` updates it.

    The average is a_1 = w_1 after the first step, and a_{n+1} = ψ_n a_n + (1 - ψ_n) w_{n+1} from then on, with
    ψ_n = min(decay, (1+n) / (10+n)). This is the warm-up of De et al. (2022), "Unlocking High-Accuracy Differentially
    Private Image Classification through Scale". Without it, a trial of a few hundred steps would release weights that
    are mostly its first ones.
    """

    def update(averages: Any, weights: Any, _: Any) -> None:
        n = int(average.n_averaged)  # on the CPU; the argument is a copy on the weights' device, and would wait for it
        get_ema_multi_avg_fn(min(decay, (1 + n) / (10 + n)))(averages, weights, n)

    average = AveragedModel(model, multi_avg_fn=update)
    # A copy of a recurrent layer loses the contiguous memory that cuDNN needs; moving the layer restores it.
    average.module.to(next(model.parameters()).device)
    return average
