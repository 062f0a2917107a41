"""A small training that carries its audit, and the bugs that are planted in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import edp.clipping
import edp.noise.source
import edp.sampling
import edp.steps
from edp.audit import Audit
from edp.hook import EDPHook, one_bucket_ddp
from edp.noise.source import NoiseSource
from edp.per_example import record_per_example
from edp.sampling import Epoch, group_by_user, poisson_epoch, poisson_examples, shuffled_epoch
from edp.spec import EDPSpec

EXAMPLES = 256
STEPS = 40


def coins(seed: int = 0, canaries: int = 10_000) -> Audit:
    return Audit(bytes([seed + 1] * 32), canaries)


def audited_training(
    spec: EDPSpec,
    audit: Audit | None,
    batch: int = EXAMPLES,
    micro_batches: int | None = None,
    epochs: int = STEPS,
    canaries: int | None = None,
) -> tuple[EDPHook, torch.Tensor]:
    """Train on 256 examples, of two users each with `unit = user`; return the hook and the weights."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(EXAMPLES, 6)
    y = (x[:, 0] > 0).long()
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    recorder = record_per_example(model)
    ddp = one_bucket_ddp(model)
    units = EXAMPLES // 2 if spec.unit == "user" else EXAMPLES
    batch = min(batch, units)
    clips = micro_batches or batch
    hook = EDPHook(
        ddp,
        spec,
        micro_batches=clips,
        single_example=clips == batch and spec.unit != "user",
        rate=batch / units,
        recorder=recorder,
        audit=audit,
        check_mixing=False,
    )
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    drawn = canaries if canaries is not None else audit.canaries if audit is not None else 0
    sizes: dict[str, Any] = {"batch_size": batch, "workers": workers, "canaries": drawn}
    for number in range(epochs):
        for step in hook.steps(_epoch(spec, units, number, clips, sizes)):
            mine = step[rank]
            held = np.array([len(examples) for examples in mine], np.int64)
            numbers = torch.from_numpy(np.concatenate(mine) if held.any() else np.zeros(1, np.int64))
            micro_batch_b = torch.from_numpy(np.repeat(np.arange(len(held)), held) if held.any() else np.zeros(1, int))
            weight_b = torch.from_numpy(np.repeat(1 / np.maximum(held, 1), held) if held.any() else np.zeros(1))
            optimizer.zero_grad()
            with recorder.examples(micro_batch_b, max(1, len(held))):
                loss_b = nn.functional.cross_entropy(ddp(x[numbers]), y[numbers], reduction="none")
            (loss_b * weight_b).sum().backward()
            optimizer.step()
    return hook, torch.cat([p.detach().flatten() for p in model.parameters()])


def _epoch(spec: EDPSpec, units: int, number: int, clips: int, sizes: dict[str, Any]) -> Epoch:
    if spec.sampling == "shuffle":
        drawn = shuffled_epoch(units, micro_batches=clips, seed=0, epoch=number, **sizes)
    elif clips == sizes["batch_size"]:
        drawn = poisson_examples(units, key=bytes(32), epoch=number, **sizes)
    else:
        drawn = poisson_epoch(units, micro_batches=clips, key=bytes(32), epoch=number, **sizes)
    return group_by_user(drawn, np.arange(EXAMPLES) // 2) if spec.unit == "user" else drawn


Plant = Callable[[pytest.MonkeyPatch], None]


def noise_times(share: float) -> Plant:
    own = NoiseSource._share_of
    return lambda patch: patch.setattr(NoiseSource, "_share_of", lambda self, std: share * own(self, std))


def noise_of_step(of: Callable[[int], int]) -> Plant:
    """Noise of another step in the place of each step's own; none where that is negative."""
    own = NoiseSource._draw

    def draw(self: NoiseSource, tensors: list[torch.Tensor], std: float, step: int, factor: float) -> None:
        own(self, tensors, std if of(step) >= 0 else 0.0, max(0, of(step)), factor)

    return lambda patch: patch.setattr(NoiseSource, "_draw", draw)


def noise_of_layer(parameter: int, times: float) -> Plant:
    """`times` the noise on one of the parameters (0: a weight of 8 by 6, 3: a bias of 2)."""
    own = edp.noise.source.add_gaussian_

    def add(tensors: list[torch.Tensor], std: list[float], *rest: Any) -> None:
        own(tensors, [s * times if i == parameter else s for i, s in enumerate(std)], *rest)

    return lambda patch: patch.setattr(edp.noise.source, "add_gaussian_", add)


def clip_skipped(share: float) -> Plant:
    own, rng = edp.clipping.clip_factors, np.random.default_rng(0)

    def factors(norms_g: torch.Tensor, *rest: Any) -> torch.Tensor:
        skipped = torch.from_numpy(rng.random(norms_g.shape) < share)
        return torch.where(skipped, 1.0, own(norms_g, *rest))

    return lambda patch: patch.setattr(edp.clipping, "clip_factors", factors)


def drawn_at(times: float) -> Plant:
    """Poisson draws at another rate, which the hook's own test of them would see too."""
    own = edp.sampling._participations

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(edp.sampling, "_participations", lambda rate, *rest: own(times * rate, *rest))
        patch.setattr(edp.steps._Evidence, "add", lambda *_: None)

    return plant


@contextmanager
def planted(plant: Plant | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            plant(patch)
        yield


def one_worker_silent(rank: int, _world: int, spec: EDPSpec) -> tuple[Any, Any, torch.Tensor]:
    """The training on two workers, of which the second adds no noise unless the clip is 1."""
    with planted(noise_times(0.0) if rank == 1 and spec.C != 1.0 else None):
        audit = coins()
        hook, weights = audited_training(spec, audit)
    return audit.scores(), hook.ledger, weights
