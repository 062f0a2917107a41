"""The training loop of one trial on one worker."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from edp.book import Book, UntaughtLayer, keep_book
from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
from edp.ledger import Ledger
from edp.sampling import Epoch, Indices, Step, of_users, poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import UserError
from trainables.data.batch import Batch
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.data.states import has_states
from trainables.models import JointModel, build_model
from trainables.models.precision import in_bfloat16
from trainables.records.job import TrialFailed
from trainables.spec import TrainingSpec, TrialSpec
from trainables.training.checkpoint import Checkpoint, spec_key
from trainables.training.optimizers import averaged, make_optimizer
from trainables.training.pieces import Piece, examples_that_fit, pieces
from trainables.training.scales import layer_scales

_SAMPLE = 16
"""How many of the longest utterances tell what a piece may hold."""

_DIVERGED = 1e6
"""A weight of this size says that training has diverged."""
_SAME_AT_ONCE = 256
"""Utterances of a piece that is cut once: the shorter their list, the more alike they are, and the less is padding."""


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


def new_model(spec: TrialSpec, corpus: EncodedCorpus, device: torch.device) -> JointModel:
    """The model that a trial starts with, on `device`: the same on every worker."""
    return build_model(
        spec.model,
        corpus.labels,
        seed=spec.training.seed,
        vocabulary_size=corpus.vocabulary_size,
        state_sizes=corpus.state_sizes,
    ).to(device)


class Trainer:
    """The training loop of one trial on one worker.

    Args:
        model: of `new_model`; with a checkpoint it gets the weights of that.
        corpus: encoded; its training split is trained on.
        checkpoint: of the same configuration, to go on from; None: from the start.
        ledger: that the run goes on with (`restored_ledger`); None: nothing was executed yet.
        write_ahead: told the ledger as it will be, before anything of it runs.

    Raises:
        TrialFailed: where model, mechanism and corpus do not fit together.
    """

    def __init__(
        self,
        model: JointModel,
        corpus: EncodedCorpus,
        spec: TrialSpec,
        device: torch.device,
        checkpoint: Checkpoint | None = None,
        ledger: Ledger | None = None,
        write_ahead: Callable[[Ledger], None] = lambda _: None,
    ) -> None:
        if checkpoint is not None:
            model.load_state_dict(checkpoint.model)
        self.key = spec_key(spec)
        self.corpus, self.spec, self.device = corpus, spec, device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.examples = corpus.size("train")
        training = spec.training
        self.users = corpus.train_users if spec.edp.unit == "user" and training.method != "sgd" else None
        """Of each training utterance, where users are drawn and clipped; `units` and `batch_size` then count users."""
        self.units = self.examples if self.users is None else corpus.units(spec.edp.unit)
        self.batch_size = training.batch_in(self.units)
        with _trials_mistake():
            if training.method != "sgd":
                spec.check_users(corpus.number_of_users)
            self.clips = training.clips_in(self.units, "utterances" if self.users is None else "users")
        self.step = checkpoint.step if checkpoint is not None else 0
        self._write_ahead, self._written_until = write_ahead, 0
        self.low_precision = in_bfloat16(training.precision, device)
        self.average = averaged(model, training.average) if training.average is not None else None
        if self.average is not None and checkpoint is not None and checkpoint.average is not None:
            self.average.load_state_dict(checkpoint.average)
        self.hook: EDPHook | None = None
        self.dropped = 0
        """Gradients that were not finite, of all workers, in the epochs that were run here (`EDPHook.dropped`)."""
        self.book = self._keep_book(model)
        self._most: int | None = training.memory_batch
        # Every step of a full batch of whole units is the same, whatever their order, and so are its pieces.
        full = self.batch_size >= self.units and self.batch_size == self.clips and spec.edp.user_utterances is None
        self._one_order = full and spec.edp.sampling == "shuffle" and has_states(spec.model)
        self._same: list[tuple[Piece, Batch]] | None = None
        if training.method == "sgd":
            self.ddp = DistributedDataParallel(model, forward_sync_buffers=False)
        else:
            ledger = ledger if ledger is not None else Ledger()
            ledger = ledger.model_copy(update={"most_of_a_user": corpus.most_of_a_user})
            if checkpoint is not None:
                alpha = checkpoint.alpha
            else:
                with _trials_mistake():
                    alpha, release = layer_scales(model, corpus, spec, device, ledger, write_ahead)
                ledger = ledger.model_copy(update={"alpha_release": release})
            self.ddp = one_bucket_ddp(model)
            with _trials_mistake():
                self.hook = EDPHook(
                    self.ddp,
                    spec.edp,
                    micro_batches=self.clips,
                    single_example=self.batch_size == self.clips and self.users is None,
                    rate=min(1.0, self.batch_size / self.units),
                    ledger=ledger,
                    alpha=alpha,
                    book=self.book,
                    clip=checkpoint.clip if checkpoint is not None else None,
                )
        self.optimizer = make_optimizer(training, self.ddp.parameters(), self.hook)
        if checkpoint is not None:
            self.optimizer.load_state_dict(checkpoint.optimizer)
        self._sampler_key = self._shared_key() if spec.edp.sampling == "poisson" else None

    def _keep_book(self, model: JointModel) -> Book | None:
        """The book of a worker that clips several micro-batches; one alone is clipped from its gradient."""
        training = self.spec.training
        if training.method == "sgd" or (self.clips == self.world and self.spec.edp.sampling == "shuffle"):
            return None
        with _trials_mistake():
            model.book = keep_book(model)
        return model.book

    @property
    def memory_batch(self) -> int:
        """The most examples that this worker runs at once."""
        if self._most is None:
            longest = np.argsort(self.corpus.lengths("train"), kind="stable")[-_SAMPLE:]
            batch = self.corpus.batch("train", longest).to(self.device)
            self._most = examples_that_fit(self.ddp.module, batch, self.device)
        return self._most

    def checkpoint(self, seconds: list[float]) -> Checkpoint:
        """The state after the epochs that took `seconds` each."""
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
        plain = Ledger(private=False, most_of_a_user=self.corpus.most_of_a_user)
        return self.hook.ledger if self.hook is not None else plain

    def run_epoch(self, epoch: int) -> float:
        """One epoch; returns the mean training loss of an utterance.

        Raises:
            TrialFailed: on every rank, when training has diverged. With a private method the weights alone say so,
                whose ε is known: a loss that is not finite would tell of its example.
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
            raise TrialFailed(f"the training loss is {mean} in epoch {epoch}: the learning rate may be too high")
        if self.hook is not None and not (largest := _largest(self.ddp.module)) < _DIVERGED:
            raise TrialFailed(f"a weight is {largest:.3g} in epoch {epoch}: the learning rate may be too high")
        return mean

    def _plan(self, epoch: int) -> None:
        """Has the epochs until the next checkpoint written down, before the first of them runs."""
        if self.hook is None or epoch < self._written_until:
            return
        every = self.spec.training.validate_every
        self._written_until = min(self.spec.training.epochs, (epoch // every + 1) * every)
        self._write_ahead(self.hook.planned(range(epoch, self._written_until)))

    def train_step(self, step: Step) -> torch.Tensor:
        """One step of the weights, of those of `steps_of`; returns the sum of this worker's utterances' losses.

        Raises:
            NonFiniteGradient: on a CPU, which need not wait for it.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(step)
        if self.hook is not None and self.device.type == "cpu":
            self.hook.check()
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.ddp.module)
        self.step += 1
        return loss

    def steps_of(self, epoch: int) -> Iterator[Step]:
        """The steps of an epoch, each to be taken before the next."""
        sampled = self.sampled(epoch)
        return iter(sampled) if self.hook is None else self.hook.steps(sampled)

    def sampled(self, epoch: int) -> Epoch:
        """The epoch as its sampler draws it."""
        drawn = self._drawn(epoch)
        if self.users is None:
            return drawn
        return of_users(drawn, self.users, seed=self.spec.training.seed, most=self.spec.edp.user_utterances)

    def _drawn(self, epoch: int) -> Epoch:
        """The epoch of units."""
        training = self.spec.training
        sizes = {"batch_size": self.batch_size, "workers": self.world, "epoch": epoch}
        if self._sampler_key is None:
            # Correlated noise is priced for examples that take part in the same step of every epoch.
            order = 0 if self._one_order or self.spec.edp.noise_correlation == "banded" else None
            return shuffled_epoch(self.units, micro_batches=self.clips, seed=training.seed, order=order, **sizes)
        # By epoch, so that a run that goes on from a checkpoint draws what it would have drawn.
        rng = np.random.default_rng([*self._sampler_key, epoch])
        if self.hook is not None and self.hook.any_number:
            return poisson_examples(self.units, rng=rng, **sizes)
        return poisson_epoch(self.units, micro_batches=self.clips, rng=rng, **sizes)

    def _backward(self, step: Step) -> torch.Tensor:
        """Gradients of this worker's share of a step, in pieces; returns the sum of its utterances' losses."""
        mine = step[self.rank]
        if self.hook is None:
            mine = [np.concatenate(mine)]
        share = sum(len(indices) for indices in mine)
        cut = self._pieces(mine, share)
        # DDP averages over workers: this makes it the mean over the utterances of the whole batch.
        everybody = max(1, sum(len(indices) for other in step for indices in other))
        factor = 1.0 if self.hook is not None else self.world * share / everybody
        total = torch.zeros((), device=self.device)
        for i, (piece, batch) in enumerate(cut):
            last = i == len(cut) - 1
            total += self._backward_piece(piece, batch, factor, i, reduce=last)
            if self.hook is not None and piece.ends and not last:
                self.hook.accumulate()
        return total

    def _pieces(self, mine: list[Indices], share: int) -> list[tuple[Piece, Batch | None]]:
        """This worker's micro-batches in pieces, and the utterances of those that are the same in every step."""
        if self._same is not None:
            return list(self._same)
        most = min(self.memory_batch, max(1, -(-share // self.spec.training.sub_chunks)))
        if self._one_order:
            most = min(most, _SAME_AT_ONCE)
        sums = self.users is not None  # what is clipped is a user's summed gradient
        cut = pieces(mine or [np.zeros(0, dtype=np.int64)], most, self._order, sums=sums)
        if not self._one_order or not self.corpus.states_in_memory:
            return [(piece, None) for piece in cut]
        self._same = [(piece, self._batch(piece.indices)) for piece in cut]
        return list(self._same)

    def _batch(self, indices: Indices) -> Batch:
        return self.corpus.batch("train", indices).to(self.device)

    def _order(self, indices: Indices) -> np.ndarray:
        """By what utterances are chosen that are run together: by length, except where the first one's clip counts."""
        if self.spec.edp.alpha == "paper" and self.step == 0:
            return np.zeros(len(indices))
        return self.corpus.lengths("train")[indices]

    def _backward_piece(
        self, piece: Piece, kept: Batch | None, factor: float, number: int, *, reduce: bool
    ) -> torch.Tensor:
        """Backpropagates `factor` times the weighted losses of a piece; returns the sum of its utterances' losses."""
        seed, indices = self.spec.training.seed, piece.indices
        # Dropout goes by utterance and step (`trainables.models.dropout`). What else a model draws goes by piece.
        torch.manual_seed(_mix(seed, self.step, self.rank, number))
        key_b = _keys(_mix(seed, self.step), indices).to(self.device)
        batch = replace(kept or self._batch(indices), key_b=key_b)
        weight_b = torch.from_numpy(piece.weight_b * np.float32(factor)).to(self.device)
        with ExitStack() as stack:
            if not reduce:
                stack.enter_context(self.ddp.no_sync())
            with ExitStack() as forward:
                if self.book is not None and piece.micro_batches > 1:
                    micro_batch_b = torch.from_numpy(piece.micro_batch_b)
                    forward.enter_context(self.book.examples(micro_batch_b, piece.micro_batches))
                forward.enter_context(torch.autocast(self.device.type, torch.bfloat16, enabled=self.low_precision))
                loss_b = self.ddp(batch)
            (loss_b * weight_b).sum().backward()
        loss_b = loss_b.detach()
        if self.hook is not None:  # which has dropped the gradients of the others
            loss_b = loss_b.where(loss_b.isfinite(), 0.0)
        return (loss_b * (weight_b > 0)).sum()

    def _shared_key(self) -> list[int]:
        """What all workers draw from and nobody else knows: Poisson's amplification needs a secret draw."""
        if self.spec.edp.reproducible_noise is not None:
            return [self.spec.edp.reproducible_noise, 0x504F49]
        entropy: list[Any] = [np.random.SeedSequence().entropy]
        dist.broadcast_object_list(entropy, src=0)
        return [int(entropy[0])]


@contextmanager
def _trials_mistake() -> Iterator[None]:
    """What fails for every worker at once: layers that leave no notes, a mechanism that does not fit the corpus."""
    try:
        yield
    except UntaughtLayer as error:
        raise TrialFailed(f"model: {error}") from error
    except UserError as error:
        raise TrialFailed(str(error)) from error


def _largest(model: torch.nn.Module) -> float:
    """The largest absolute value of a trainable parameter; NaN where one is."""
    norms = torch._foreach_norm([p.detach() for p in model.parameters() if p.requires_grad], torch.inf)
    return float(torch.stack([norm.float() for norm in norms]).max())


def _keys(seed: int, indices: Indices) -> torch.Tensor:
    """A key for each utterance, (B,) int32: a hash of (seed, index) (the finaliser of SplitMix64)."""
    x = indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy((x >> np.uint64(32)).astype(np.uint32).view(np.int32))


def _mix(*parts: int) -> int:
    """63 bits that depend on all of `parts`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little") >> 1
