"""Algorithm 1 as a gradient hook of `DistributedDataParallel`.

`α·clip(g/α) = c·g` with one scalar `c = min(1, C/‖g/α‖)` a micro-batch, so a step is: the norm of each micro-batch's
gradient, their clipped sum into the bucket, noise, one all-reduce. The clip needs the norm over all layers, hence one
bucket.

A worker that holds several micro-batches runs them in one pass, whatever their number, where the model's layers keep a
book (`edp.per_example`), which knows each micro-batch's norm and the clipped sum without a gradient of its own for each:

    book = keep_book(model)
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, spec, micro_batches=N, single_example=..., rate=batch_size / examples, book=book)
    for t in range(epochs):
        epoch = shuffled_epoch(examples, batch_size=..., micro_batches=N, workers=world, seed=0, epoch=t)
        for step in hook.steps(epoch):
            micro_batches = step[rank]          # an array of examples each, from which come the three that follow
            optimizer.zero_grad()
            with book.examples(micro_batch_b, len(micro_batches)):
                loss_b = ddp(batch)             # (B,)
            (loss_b * weight_b).sum().backward()    # the mean over each micro-batch
            optimizer.step()

Epochs come from `edp.sampling`, which tells the hook what they are: noise and ledger follow, and a loop that does
something else than the ledger says ends with `MisusedHook` (`edp.steps`).

Examples that do not fit into memory together are run in pieces, each of whole micro-batches: all but the last under
`no_sync`, with `EDPHook.accumulate` after each. A micro-batch that does not fit, and a model without a book, take the
other way: a piece is then one micro-batch, whose gradient PyTorch adds up, in as many backward passes as need be:

    for i, micro_batch in enumerate(micro_batches):
        last = i == len(micro_batches) - 1
        with nullcontext() if last else ddp.no_sync():
            loss(micro_batch).backward()
        if not last:
            hook.accumulate()
    optimizer.step()

True DP-SGD (Poisson sampling, `single_example`) is the same with the examples that were dealt to the worker, as many
as there are: each is a micro-batch of its own, and a worker without one backpropagates a loss times 0, since all must
reach the all-reduce. The sum is divided by the fixed N, the expected batch size.

With `unit = user` a micro-batch holds the examples of one user, which `edp.sampling.of_users` deals, and its loss is
their sum; `rate` and N count users, and with Poisson sampling all is as for DP-SGD.

With `noise_correlation = banded` every example has the same step in every epoch: `shuffled_epoch(…, order=0)`.

A micro-batch whose gradient is not finite adds nothing, and the step goes on (`EDPHook.dropped`). A run that ended
there would tell of its example, outside of any ε.

A scaler of mixed precision does no harm, and is of no use: the clip sees scaled gradients, so the weights learn little.

Formal guarantee: what `hook.ledger` holds, priced by `edp.accounting.epsilon`. The aggregator is trusted: a single
worker's message carries only its share of the noise.
"""

# No `from __future__ import annotations` here: DDP checks the hook's annotations themselves.
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

from edp.clipping import Clip, ClippedSum, count_noise
from edp.layer_scales import fixed_alpha, layer_norms, layer_of_parameter, normalised
from edp.ledger import Ledger, LedgerEntry
from edp.mechanism import Mechanism, mechanism_of
from edp.noise.share import NoiseShare
from edp.per_example import Book
from edp.sampling import Epoch, Step, share_start, steps_at_rate
from edp.spec import EDPSpec
from edp.steps import StepGuard

# One bucket whatever the model's size: DDP's limit, in MiB.
_ONE_BUCKET_MB = 1 << 20


class NonFiniteGradient(RuntimeError):
    """An aggregate was NaN or infinite: the weights of this step must not be used."""


def one_bucket_ddp(model: nn.Module) -> DistributedDataParallel:
    """DDP as the hook needs it: all gradients in one bucket, from the first step on."""
    return DistributedDataParallel(
        model, bucket_cap_mb=_ONE_BUCKET_MB, gradient_as_bucket_view=True, forward_sync_buffers=False
    )


class EDPHook:
    """Clips, noises and averages gradients as Algorithm 1 says, and writes down what it did.

    Args:
        ddp: from `one_bucket_ddp`. The hook registers itself.
        spec: the mechanism.
        micro_batches: N, over all workers; at least one a worker. Worker r holds the micro-batches
            ⌊r·N/W⌋ to ⌊(r+1)·N/W⌋ − 1, and backpropagates them in that order; with Poisson sampling and
            `single_example`, any number of them, and N is the expected batch size.
        single_example: whether no micro-batch holds more than one example (DP-SGD): halves the sensitivity.
        rate: share of the training set that a step holds, for the ledger.
        ledger: of the steps already taken, when a run is resumed.
        alpha: layer scales (K,) where they were found beforehand (`edp.scale_estimates`); otherwise as `spec.alpha`
            says. Those of `alpha = private` come with a release, which `ledger` must hold.
        book: of `ddp`'s model (`edp.per_example.keep_book`), where several micro-batches share a backward pass.
        clip: `clip_state` of the hook that a resumed run with `clip = quantile` goes on from; otherwise `spec.C`.

    Raises:
        UserError: for a band that is longer than an epoch.
        NonFiniteGradient: from `check`, which on CPU runs in every step.
        MisusedHook: from a step that the ledger could not hold.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        spec: EDPSpec,
        *,
        micro_batches: int,
        single_example: bool,
        rate: float,
        ledger: Ledger | None = None,
        alpha: torch.Tensor | None = None,
        book: Book | None = None,
        clip: float | None = None,
    ) -> None:
        self.spec, self.book = spec, book
        self.ledger = ledger if ledger is not None else Ledger()
        self.group = ddp.process_group
        world = dist.get_world_size(self.group)
        if micro_batches < world:
            raise ValueError(f"micro_batches = {micro_batches} is less than one for each of the {world} workers")
        self.micro_batches, self.single_example, self.rate = micro_batches, single_example, rate
        rank = dist.get_rank(self.group)
        mine = range(share_start(rank, micro_batches, world), share_start(rank + 1, micro_batches, world))
        self.per_worker = len(mine)
        # Of micro-batches of one example, or of one user, Poisson sampling alone decides how many a step holds.
        self.any_number = (single_example or spec.unit == "user") and spec.sampling == "poisson"
        self.parameters, layer, self.layer_names = layer_of_parameter(ddp.module)
        device = self.parameters[0].device
        self.layer = torch.tensor(layer, device=device)
        self.alpha = self._initial_alpha(alpha, device)
        self.clip = Clip(spec, micro_batches, device, clip)
        self._pending = ClippedSum(self.parameters)
        # Registration order: DDP's order is its own.
        self._position = {id(p): i for i, p in enumerate(self.parameters)}
        self._step = self.ledger.steps
        self._last_bucket: torch.Tensor | None = None
        self.epoch = 0
        self.noise = NoiseShare(self.parameters, mine, spec.reproducible_noise, self._mechanism_in(0).band)
        self._set_mechanism()
        per_worker = None if self.any_number else self.per_worker
        self._guard = StepGuard(self.mechanism, ddp.module, rank, world, per_worker)
        ddp.register_comm_hook(None, self._take_step)

    @property
    def clip_state(self) -> float:
        """The clip of the next step, for a checkpoint. On a GPU this waits for it."""
        return float(self.clip.C)

    @property
    def dropped(self) -> int:
        """Micro-batches of this worker so far whose gradient was not finite: they added nothing, and the step went on.

        No ε covers it, as none covers a loss. On a GPU this waits for it.
        """
        return int(self.clip.dropped)

    def steps(self, epoch: Epoch) -> Iterator[Step]:
        """The steps of an epoch, one after the other, each to be taken before the next: z_t and ledger follow.

        Raises:
            MisusedHook: for an epoch that is not of the spec's sampling and of this hook's rate, or whose number was
                that of the last one; for a step that was left out; for an example that a shuffled epoch holds twice.
        """
        self._guard.begin(epoch, self.ledger)
        self.epoch = epoch.number
        self._set_mechanism()
        for step in epoch:
            self._guard.open_step(epoch, step)
            yield step
        self._guard.end_step()

    def _take_step(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        self._guard.execute()
        return self._reduce(state, bucket)

    def planned(self, epochs: range) -> Ledger:
        """The ledger as it will be when `epochs`, the next ones, have run in full.

        For a loop that writes down what is about to run before it runs: of a process that dies, the ledger then says
        what it may have done (`Ledger.after_loss`).
        """
        entries = (
            LedgerEntry(epoch=t, steps=steps_at_rate(self.rate), mechanism=self._mechanism_in(t)) for t in epochs
        )
        return self.ledger.model_copy(update={"entries": (*self.ledger.entries, *entries)})

    def _set_mechanism(self) -> None:
        self.mechanism = self._mechanism_in(self.epoch)
        if self.spec.alpha_noise == "per_layer" and self.alpha is not None:
            self.noise.shape = self.alpha[self.layer].tolist()  # for which a GPU is waited for, once an epoch

    def _mechanism_in(self, epoch: int) -> Mechanism:
        return mechanism_of(
            self.spec,
            epoch,
            micro_batches=self.micro_batches,
            rate=self.rate,
            single_example=self.single_example,
            max_alpha=float(self.alpha.max()) if self.alpha is not None else 1.0,
        )

    def _initial_alpha(self, alpha: torch.Tensor | None, device: torch.device) -> torch.Tensor | None:
        if alpha is not None:
            return alpha.to(device)
        if self.spec.alpha == "fixed":
            sizes = [0] * len(self.layer_names)
            for k, parameter in zip(self.layer.tolist(), self.parameters, strict=True):
                sizes[k] += parameter.numel()
            return fixed_alpha(sizes).to(device)
        if self.spec.alpha == "none":
            return torch.ones(len(self.layer_names), device=device)
        if self.spec.alpha == "paper":
            return None  # known after the first private gradient
        raise ValueError(f"alpha {self.spec.alpha} needs scales that were found beforehand: give alpha=")

    def accumulate(self) -> None:
        """Clips what was backpropagated since the last call, adds it up, and clears it; not after a step's last piece.

        It is all micro-batches that the book has notes of, or else one micro-batch, whose gradient the parameters hold.
        """
        self._guard.within()
        if self.book is not None and self.book.has_notes:
            factor_m = self._clip_factors(self.book.squares().sqrt()) / self.micro_batches
            self._guard.count(len(factor_m), more=True)
            self._pending.add_noted(self.book, factor_m)
            return
        self._guard.count(1, more=True)
        gradients = [self._gradient(p) for p in self.parameters]
        self._pending.add(gradients, self._clip_factor(gradients) / self.micro_batches)
        for parameter in self.parameters:
            parameter.grad = None

    def check(self) -> None:
        """Raises NonFiniteGradient if the last step's aggregate is not finite. On a GPU this waits for it."""
        if self._last_bucket is not None and not bool(torch.isfinite(self._last_bucket.sum())):
            raise NonFiniteGradient(f"the aggregate was NaN or infinite in epoch {self.epoch}, step {self._step - 1}")

    def _reduce(self, _state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP's hook: Algorithm 1 on the bucket that holds every gradient of this worker."""
        buffer, gradients = self._opened(bucket)
        scale = self._clip_into(gradients)
        self._add_noise(buffer, gradients, scale)
        self._pending.move_to(gradients)
        self._move_clip()
        self._record_step(buffer)
        return self._all_reduce(buffer)

    def _opened(self, bucket: GradBucket) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The bucket's buffer, and its views in the order of the parameters."""
        if not (bucket.is_last() and bucket.index() == 0):
            raise RuntimeError("DDP made several buckets: build it with one_bucket_ddp")
        in_order = [self._position[id(p)] for p in bucket.parameters()]
        views = bucket.gradients()
        return bucket.buffer(), [views[j] for j in sorted(range(len(in_order)), key=in_order.__getitem__)]

    def _clip_into(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        """Puts the clipped sum of the step's last micro-batches, over N, into `gradients`.

        Returns:
            A scalar tensor that `gradients` must still be multiplied by, where they hold one micro-batch's own: the
            kernel that adds noise does it on the way.
        """
        if self.book is None or not self.book.has_notes:
            self._guard.count(1, more=False)
            return self._clip_factor(gradients) / self.micro_batches
        factor_m = self._clip_factors(self.book.squares().sqrt()) / self.micro_batches
        self._guard.count(len(factor_m), more=False)
        self.book.write(factor_m, {id(p): x for p, x in zip(self.parameters, gradients, strict=True)})
        return None

    def _add_noise(self, buffer: torch.Tensor, gradients: list[torch.Tensor], scale: torch.Tensor | None) -> None:
        """Adds this worker's share of the step's noise, that of N/W micro-batches, divided by N, to the bucket.

        With `scale`, a scalar tensor, the bucket is multiplied by it on the way.
        """
        std = self.mechanism.micro_batch_noise_std() / self.micro_batches
        self.noise.add_(buffer, gradients, std, self._step, scale=scale, stretch=self.clip.stretch)

    def _move_clip(self) -> None:
        """With `clip = quantile`: the next step's clip, by a noisy count over all workers."""
        if self.clip.moves:
            share, step = self.noise, self._step
            noise = count_noise(share.key, self.micro_batches, share.mine, step, replayable=share.replayable)
            self.clip.move(noise, self.group)

    def _record_step(self, buffer: torch.Tensor) -> None:
        self.ledger = self.ledger.record(self.epoch, self.mechanism)
        self._guard.recorded()
        self._step, self._last_bucket = self._step + 1, buffer

    def _all_reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(buffer, group=self.group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    @staticmethod
    def _gradient(parameter: nn.Parameter) -> torch.Tensor:
        if parameter.grad is None:
            raise RuntimeError("a trainable parameter got no gradient: freeze it, or it would get no noise either")
        return parameter.grad

    def _clip_factor(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """`c` of one micro-batch, a scalar tensor, from its gradients; 0 where they are not finite."""
        return self._clip_factors(layer_norms(gradients, self.layer, len(self.layer_names))[None])[0]

    def _clip_factors(self, norms_mk: torch.Tensor) -> torch.Tensor:
        """`c = min(1, C/‖g/α‖)`, or as `clip` says, of each micro-batch (M,), from its norms by layer (M, K).

        0 where a gradient is not finite.
        """
        if self.alpha is None:
            # The paper's way: scales read off the first private gradient, without noise. All workers use worker 0's.
            first = norms_mk[0].clone()
            dist.broadcast(first, src=dist.get_global_rank(self.group, 0), group=self.group)
            self.alpha = normalised(first)
            self._set_mechanism()
        return self.clip.factors(torch.linalg.vector_norm(norms_mk / self.alpha, dim=1))
