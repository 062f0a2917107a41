"""Algorithm 1 of the paper (Dupuy et al.) as a gradient hook of `DistributedDataParallel`.

| line of Algorithm 1, for a micro-batch M of N | here |
|---|---|
| compute Δ ← ∇ of the mean loss over M | the loop's backward pass |
| scale Δ_k/α_k, clip by min(1, C/‖Δ‖), rescale α_k·Δ_k | `_clip_factors`: α·clip(Δ/α) = c·Δ, only the norm uses α |
| z_t ← z0·d(t) | `edp.mechanism.noise_multiplier`, once an epoch: `_set_mechanism` |
| add y/N, y ~ N(0, (C·z_t)²) | `_add_noise`; y/√N by default, see `Mechanism.micro_batch_noise_std` |
| aggregate (1/N)·Σ_M Δ | `_all_reduce`; every worker has divided its part by N |

Departures from it, besides the noise: the scales do not come from the first private gradient unless `alpha = paper`
(`edp.alpha`), N is independent of the number of workers, and a gradient that is not finite counts as 0.

So a step is: the norm of each micro-batch's gradient, their clipped sum into the bucket, noise, one all-reduce. The
clip needs the norm over all layers, hence one bucket.

A worker runs its micro-batches in one pass, whatever their number, if a recorder (`edp.per_example`) provides each
one's norm and the clipped sum without a gradient of its own for each:

    recorder = record_per_example(model)
    ddp = one_bucket_ddp(model)
    hook = EDPHook(ddp, spec, micro_batches=N, single_example=..., rate=batch_size / examples, recorder=recorder)
    for t in range(epochs):
        epoch = shuffled_epoch(examples, batch_size=..., micro_batches=N, workers=world, seed=0, epoch=t)
        for step in hook.steps(epoch):
            micro_batches = step[rank]          # an array of examples each; the next three names follow from it
            optimizer.zero_grad()
            with recorder.examples(micro_batch_b, len(micro_batches)):
                loss_b = ddp(batch)             # (B,)
            (loss_b * weight_b).sum().backward()    # the mean over each micro-batch
            optimizer.step()

Epochs come from `edp.sampling` and tell the hook how they were drawn: noise and ledger follow. A loop that does
something else than the ledger says ends with `HookUsageError` (`edp.steps`).

Examples that do not fit into memory together run in chunks of whole micro-batches: all but the last under `no_sync`,
with `EDPHook.accumulate` after each. Without a recorder, or for a micro-batch that does not fit, a chunk is one
micro-batch, whose gradient PyTorch adds up, in as many backward passes as it needs:

    for i, micro_batch in enumerate(micro_batches):
        last = i == len(micro_batches) - 1
        with nullcontext() if last else ddp.no_sync():
            loss(micro_batch).backward()
        if not last:
            hook.accumulate()
    optimizer.step()

True DP-SGD (Poisson sampling, `single_example`) is the same with any number of examples a worker: each is a
micro-batch of its own. A worker without examples backpropagates a loss times 0, since all must reach the all-reduce.
The sum is divided by the fixed N, the expected batch size.

With `unit = user` a micro-batch holds the examples of one user (`edp.sampling.group_by_user`), and its loss is their
sum; `rate` and N count users. With Poisson sampling all else is as for DP-SGD.

With `noise_correlation = banded` every example has the same step in every epoch: `shuffled_epoch(…, order=0)`.

A micro-batch whose gradient is not finite adds nothing, and the step goes on (`EDPHook.dropped`). If the run ended
there, its end would reveal something about that example that no ε covers.

Examples must not mix: no micro-batch's gradient may depend on another's examples (`edp.mixing`).

A gradient scaler for mixed precision is harmless and useless: the clip sees scaled gradients, so the weights learn
little.

Formal guarantee: what `hook.ledger` holds, priced by `edp.accounting.epsilon`. The aggregator is trusted: a single
worker's message carries only its share of the noise.
"""

# No `from __future__ import annotations` here: DDP inspects the hook's annotations, which must be types.
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket
from torch.nn.parallel import DistributedDataParallel

from edp.alpha import fixed_alpha, layer_norms, normalised
from edp.audit import Audit, not_read
from edp.clipping import Clip, ClippedSum, count_noise
from edp.ledger import Ledger, LedgerEntry
from edp.mechanism import Mechanism, mechanism_of
from edp.mixing import MixingCheck
from edp.noise.source import noise_source
from edp.per_example import GradientRecorder, layer_of_parameter, refuse_mixing_layers
from edp.sampling import Epoch, Indices, Step, share_start, steps_at_rate
from edp.spec import EDPSpec, UserError
from edp.steps import HookUsageError, OwnShare, StepGuard

# DDP's bucket limit in MiB, larger than any model: one bucket.
_ONE_BUCKET_MB = 1 << 20


class NonFiniteGradient(RuntimeError):
    """The aggregate of a step is NaN or infinite: the weights of this step must not be used."""


def one_bucket_ddp(model: nn.Module) -> DistributedDataParallel:
    """Wrap `model` in DDP as the hook needs it: all gradients in one bucket, from the first step on."""
    return DistributedDataParallel(
        model, bucket_cap_mb=_ONE_BUCKET_MB, gradient_as_bucket_view=True, forward_sync_buffers=False
    )


class EDPHook:
    """Clips, noises and averages gradients as Algorithm 1 says, and records each step in its ledger.

    Args:
        ddp: from `one_bucket_ddp`. The hook registers itself.
        spec: the mechanism.
        micro_batches: N, over all workers; at least one a worker. Worker r holds the micro-batches
            ⌊r·N/W⌋ to ⌊(r+1)·N/W⌋ − 1, and backpropagates them in that order; with Poisson sampling and
            `single_example`, any number of them, and N is the expected batch size.
        single_example: True if no micro-batch holds more than one example (DP-SGD): halves the sensitivity.
        rate: share of the training set that a step holds, for the ledger.
        ledger: the steps already taken, when a run is resumed.
        alpha: layer scales (K,) that were estimated beforehand (`edp.alpha`); otherwise as `spec.alpha` says. Those
            of `alpha = private` come with a release, which `ledger` must hold.
        recorder: the recorder of `ddp`'s model (`edp.record_per_example`), if micro-batches share a backward pass.
        clip: `clip_state` of the last hook when a run with `clip = quantile` is resumed; otherwise `spec.C`.
        check_mixing: compare buffers and frozen parameters before and after a step, and outputs of an example with
            and without another one (`edp.mixing`).
        audit: canaries that read the noise (`edp.audit`). Epochs must draw them: `canaries=audit.canaries`.

    Raises:
        UserError: for noise correlated over more steps than an epoch has; for a mechanism that the audit does not read.
        UnsupportedLayer: for a batch norm, or running statistics of a norm.
        NonFiniteGradient: from `check`, which on CPU runs in every step.
        HookUsageError: from a step that the ledger could not hold, or that mixes examples.
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
        recorder: GradientRecorder | None = None,
        clip: float | None = None,
        check_mixing: bool = True,
        audit: Audit | None = None,
    ) -> None:
        refuse_mixing_layers(ddp.module)
        self.spec, self.recorder = spec, recorder
        self.ledger = ledger if ledger is not None else Ledger()
        self.group = ddp.process_group
        world = dist.get_world_size(self.group)
        if micro_batches < world:
            raise ValueError(f"micro_batches = {micro_batches} is less than one for each of the {world} workers")
        self.micro_batches, self.single_example, self.rate = micro_batches, single_example, rate
        rank = dist.get_rank(self.group)
        mine = range(share_start(rank, micro_batches, world), share_start(rank + 1, micro_batches, world))
        self.per_worker = len(mine)
        # With micro-batches of one example, or of one user, Poisson sampling decides how many a step holds.
        self.any_number = (single_example or spec.unit == "user") and spec.sampling == "poisson"
        self.parameters, layer, self.layer_names = layer_of_parameter(ddp.module)
        device = self.parameters[0].device
        self.layer = torch.tensor(layer, device=device)
        self.alpha = self._initial_alpha(alpha, device)
        self.clip = Clip(spec, micro_batches, device, clip)
        self.audit = audit
        if audit is not None:
            self._prepare_audit(audit, device)
        self._pending = ClippedSum(self.parameters)
        # DDP orders the bucket as it likes; noise and scales go by registration order.
        self._position = {id(p): i for i, p in enumerate(self.parameters)}
        self._step = self.ledger.steps
        self._last_bucket: torch.Tensor | None = None
        self.epoch = 0
        # The canaries come last, so that the noise of the parameters is the same without them.
        noised = [*self.parameters, *self._canary_sum()]
        self.noise = noise_source(noised, mine, spec.reproducible_noise, self._mechanism_in(0).band)
        self._set_mechanism()
        per_worker = None if self.any_number else self.per_worker
        self._guard = StepGuard(self.mechanism, ddp.module, self.group, per_worker)
        self._mixing = MixingCheck(ddp.module, recorder, self._step) if check_mixing else None
        ddp.register_comm_hook(None, self._take_step)

    @property
    def clip_state(self) -> float:
        """The clip of the next step, for a checkpoint. Waits for a GPU."""
        return float(self.clip.C)

    @property
    def dropped(self) -> int:
        """Number of this worker's micro-batches so far whose gradient was not finite, and which added nothing.

        No ε covers this number, as none covers a loss. Waits for a GPU.
        """
        return int(self.clip.dropped)

    def steps(self, epoch: Epoch) -> Iterator[Step]:
        """Yield the steps of an epoch; the loop takes each before the next. z_t and ledger follow the epoch.

        A worker takes its own share, `step[rank]`; another index raises. All shares can be iterated over, to count.

        Raises:
            HookUsageError: for an epoch whose sampling is not the spec's, whose rate is not this hook's, or whose
                number is the last one's; for a step that was left out; for an example twice in a shuffled epoch; for
                Poisson steps that repeat. In the backward pass: for what else `edp.steps` lists.
        """
        self._guard.begin(epoch, self.ledger)
        self.epoch = epoch.number
        self._set_mechanism()
        if self._mixing is not None:
            self._mixing.begin_epoch()
        canaries = iter(epoch.canaries)
        for step in epoch:
            self._guard.open_step(epoch, step)
            if self.audit is not None:
                self._draw_canaries(next(canaries, None))
            if self._mixing is not None:
                self._mixing.begin_step()
            yield OwnShare(step, dist.get_rank(self.group))
        self._guard.end_step()
        self._guard.check_others()
        if self._mixing is not None:
            self._mixing.end_epoch()

    def _take_step(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        self._guard.execute()
        if self._mixing is not None:
            self._mixing.end_step()
        return self._reduce(state, bucket)

    def planned(self, epochs: range) -> Ledger:
        """Return the ledger as it will be when the next `epochs` have run in full.

        A loop that saves it before these epochs run can account for what a process did before it died
        (`Ledger.after_loss`).
        """
        entries = (
            LedgerEntry(epoch=t, steps=steps_at_rate(self.rate), mechanism=self._mechanism_in(t)) for t in epochs
        )
        return self.ledger.model_copy(update={"entries": (*self.ledger.entries, *entries)})

    def _set_mechanism(self) -> None:
        self.mechanism = self._mechanism_in(self.epoch)
        if self.spec.alpha_noise == "per_layer" and self.alpha is not None:
            shape = self.alpha[self.layer].tolist()  # waits for a GPU, once an epoch
            self.noise.shape = [*shape, *[self.mechanism.max_alpha for _ in self._canary_sum()]]

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
            return None  # read off the first private gradient, in `_clip_factors`
        raise ValueError(f"alpha = {self.spec.alpha} needs scales that were estimated beforehand: give alpha=")

    def accumulate(self) -> None:
        """Clip what was backpropagated since the last call, and add it up. Call it after each chunk but a step's last.

        A chunk is all micro-batches that the recorder has records of, or one micro-batch, in the parameters' `.grad`.
        """
        self._guard.check_open()
        if self.recorder is not None and self.recorder.has_records:
            factor_m = self._clip_factors(self.recorder.squared_norms().sqrt()) / self.micro_batches
            self._guard.count(len(factor_m), self.recorder.sizes(), more=True)
            self._pending.add_recorded(self.recorder, factor_m)
            return
        self._guard.count(1, more=True)
        gradients = [self._gradient(p) for p in self.parameters]
        self._pending.add(gradients, self._clip_factor(gradients) / self.micro_batches)
        for parameter in self.parameters:
            parameter.grad = None

    def check(self) -> None:
        """Raise NonFiniteGradient if the last step's aggregate is not finite. Waits for a GPU."""
        if self._last_bucket is not None and not bool(torch.isfinite(self._last_bucket.sum())):
            raise NonFiniteGradient(f"the aggregate was NaN or infinite in epoch {self.epoch}, step {self._step - 1}")

    def _reduce(self, _state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Run Algorithm 1 on the bucket that holds every gradient of this worker."""
        buffer, gradients = self._open_bucket(bucket)
        clip_factor = self._clip_into(gradients)  # scale, clip, rescale
        canary_sum = self._canary_sum()
        self._add_noise(buffer, [*gradients, *canary_sum], clip_factor)
        self._pending.move_to(gradients)  # after the noise, whose kernel applies the clip factor to the bucket alone
        self._read_noise(canary_sum, gradients)
        self._move_clip()
        self._record_step(buffer)
        return self._all_reduce(buffer)  # aggregate

    def _open_bucket(self, bucket: GradBucket) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the bucket's buffer, and its views in the order of the parameters."""
        if not (bucket.is_last() and bucket.index() == 0):
            raise RuntimeError("DDP made several buckets: build it with one_bucket_ddp")
        in_order = [self._position[id(p)] for p in bucket.parameters()]
        views = bucket.gradients()
        return bucket.buffer(), [views[j] for j in sorted(range(len(in_order)), key=in_order.__getitem__)]

    def _clip_into(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        """Write the clipped sum of the step's last chunk, over N, into `gradients`.

        Returns:
            The clip factor over N, a scalar tensor, if `gradients` hold one micro-batch's gradient: the noise kernel
            multiplies by it in its one pass. None if the sum is clipped already.
        """
        if self.recorder is None or not self.recorder.has_records:
            self._guard.count(1, more=False)
            return self._clip_factor(gradients) / self.micro_batches
        factor_m = self._clip_factors(self.recorder.squared_norms().sqrt()) / self.micro_batches
        self._guard.count(len(factor_m), self.recorder.sizes(), more=False)
        self.recorder.write(factor_m, {id(p): x for p, x in zip(self.parameters, gradients, strict=True)})
        return None

    def _add_noise(self, buffer: torch.Tensor, gradients: list[torch.Tensor], clip_factor: torch.Tensor | None) -> None:
        """Multiply the bucket by `clip_factor`, and add this worker's share of the step's noise, divided by N.

        The canaries' sum, the last of `gradients` in an audit, is 0 so far and outside of the bucket.

        The share is that of N/W micro-batches, however many this worker took: their number must not show.
        """
        std = self.mechanism.micro_batch_noise_std() / self.micro_batches
        self.noise.add_(buffer, gradients, std, self._step, clip_factor=clip_factor, stretch=self.clip.stretch)

    def _prepare_audit(self, audit: Audit, device: torch.device) -> None:
        if (why := not_read(self.spec)) is not None:
            raise UserError(why)
        if audit.steps != self.ledger.steps:
            raise ValueError(f"the audit scored {audit.steps} steps, and the ledger has {self.ledger.steps}")
        sizes = [p.numel() for p in self.parameters]
        audit.watch(sizes, self.layer.tolist(), self.layer_names, device)

    def _canary_sum(self) -> list[torch.Tensor]:
        """Return zeros for the canaries' sum, of the parameters' type; nothing without an audit."""
        return [self.parameters[0].new_zeros(self.audit.canaries)] if self.audit is not None else []

    def _draw_canaries(self, canaries: list[Indices] | None) -> None:
        assert self.audit is not None
        if canaries is None:
            raise HookUsageError(
                f"the audit has {self.audit.canaries} canaries, and the sampler drew none; allowed: an epoch with "
                "canaries = audit.canaries"
            )
        self.audit.draw(canaries)

    def _read_noise(self, canary_sum: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Add this worker's canaries to its share of the noise, reduce with the watched coordinates, and score."""
        for noisy in canary_sum:
            assert self.audit is not None
            assert self.audit.layers is not None
            own = self.audit.gradient(self.mechanism, dist.get_rank(self.group), self.clip.factors)
            noisy += own.to(noisy.dtype) / self.micro_batches
            both = torch.cat([noisy, self.audit.layers.watched(gradients)])
            dist.all_reduce(both, group=self.group)
            self.audit.score(self.mechanism, both[: len(noisy)])
            std = self.mechanism.noise_std()
            self.audit.layers.score(both[len(noisy) :], [std * s for s in self.noise.shape[: len(gradients)]])

    def _move_clip(self) -> None:
        """Set the next step's clip from a noisy count over all workers, if `clip = quantile`."""
        if self.clip.moves:
            mine, replayable = self.noise.mine, self.noise.replayable
            noise = count_noise(self.noise.key, self.micro_batches, mine, self._step, replayable=replayable)
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
        """Return `c` of one micro-batch, a scalar tensor, from its gradients; 0 if they are not finite."""
        return self._clip_factors(layer_norms(gradients, self.layer, len(self.layer_names))[None])[0]

    def _clip_factors(self, norms_mk: torch.Tensor) -> torch.Tensor:
        """Return `c = min(1, C/‖Δ/α‖)`, or what `spec.clip` makes of it, of each micro-batch (M,); 0 if not finite.

        Args:
            norms_mk: L2 norm of each micro-batch's gradient in each layer, (M, K).
        """
        if self.alpha is None:
            # The paper's scaling: α is the first private gradient's norms, without noise. All workers use worker 0's.
            first = norms_mk[0].clone()
            dist.broadcast(first, src=dist.get_global_rank(self.group, 0), group=self.group)
            self.alpha = normalised(first)
            self._set_mechanism()
        if self._guard.nothing_drawn:
            return self.clip.factors(norms_mk.new_zeros(len(norms_mk))) * 0
        return self.clip.factors(torch.linalg.vector_norm(norms_mk / self.alpha, dim=1))
