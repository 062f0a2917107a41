"""Training with correlated noise: literally, with the strategy matrix written out, and through DDP and the hook."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.noise.banded import band_of, coefficients
from edp.noise.gaussian import add_gaussian_, reproducible_key, stream
from edp.per_example import layer_of_parameter
from edp.sampling import shuffled_epoch
from edp.spec import EDPSpec
from tests.support.edp.literal import optimizer_of, small_model, step_data

STEPS, MICRO_BATCHES, SIZE = 4, 2, 3
"""Of an epoch; of a step; of a micro-batch."""


def strategy(steps: int, band: int) -> np.ndarray:
    """C (steps, steps), written out."""
    c = np.array(coefficients(band)) / np.linalg.norm(coefficients(band))
    C = np.zeros((steps, steps))
    for t in range(steps):
        for j in range(min(band, t + 1)):
            C[t, t - j] = c[j]
    return C


def literal_training(spec: EDPSpec, *, epochs: int, blocks: tuple[int, ...] | None = None) -> torch.Tensor:
    """Flat weights after so many epochs in one order; `blocks` are the steps between restarts."""
    assert spec.reproducible_noise is not None
    model = small_model()
    optimizer = optimizer_of(model)
    parameters, layer, names = layer_of_parameter(model)
    sizes = [sum(p.numel() for p, k in zip(parameters, layer, strict=True) if k == j) for j in range(len(names))]
    alpha = [math.sqrt(size / max(sizes)) for size in sizes]
    total, place = epochs * STEPS, 0
    C = np.zeros((total, total))
    for block in blocks or (total,):
        C[place : place + block, place : place + block] = strategy(block, band_of(spec, 1 / STEPS))
        place += block
    z = []
    for t in range(total):
        noise = [torch.zeros_like(p) for p in parameters]
        for i in range(MICRO_BATCHES):
            std = spec.C * spec.z0 / math.sqrt(MICRO_BATCHES)
            key = reproducible_key(spec.reproducible_noise)
            add_gaussian_(noise, [std] * len(noise), stream(key, i, t))
        z.append(torch.cat([x.flatten() for x in noise]).double().numpy())
    w = torch.from_numpy(np.linalg.solve(C, np.stack(z))).float()
    for t in range(total):
        x, y = step_data(t % STEPS, MICRO_BATCHES * SIZE)
        aggregate = [torch.zeros_like(p) for p in parameters]
        for i in range(MICRO_BATCHES):
            model.zero_grad()
            piece = slice(i * SIZE, (i + 1) * SIZE)
            nn.functional.cross_entropy(model(x[piece]), y[piece]).backward()
            scaled = [p.grad / alpha[k] for p, k in zip(parameters, layer, strict=True)]
            norm = math.sqrt(sum(float(g.square().sum()) for g in scaled))
            factor = spec.C / (norm + 0.01) if spec.clip == "automatic" else min(1.0, spec.C / norm)
            for g, p in zip(aggregate, parameters, strict=True):
                g += factor * p.grad
        noise = w[t].split([p.numel() for p in parameters])
        for p, g, n, k in zip(parameters, aggregate, noise, layer, strict=True):
            scale = alpha[k] if spec.alpha_noise == "per_layer" else 1.0
            p.grad = (g + scale * n.view_as(p)) / MICRO_BATCHES
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in parameters])


def hook_training(rank: int, world: int, spec: EDPSpec, epochs: int) -> tuple[torch.Tensor, Ledger]:
    """The same through DDP and the hook, on one of `world` workers."""
    model = small_model()
    ledger = _train(rank, world, model, spec, range(epochs), Ledger())
    return torch.cat([p.detach().flatten() for p in model.parameters()]), ledger


def resumed_training(rank: int, world: int, spec: EDPSpec, epochs: int) -> tuple[torch.Tensor, Ledger]:
    """The same, with another hook for every epoch."""
    model, ledger = small_model(), Ledger()
    for epoch in range(epochs):
        ledger = _train(rank, world, model, spec, range(epoch, epoch + 1), ledger)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), ledger


def _train(rank: int, world: int, model: nn.Module, spec: EDPSpec, epochs: range, ledger: Ledger) -> Ledger:
    ddp = one_bucket_ddp(model)
    optimizer = optimizer_of(ddp)
    hook = EDPHook(ddp, spec, micro_batches=MICRO_BATCHES, single_example=False, rate=1 / STEPS, ledger=ledger)
    mine = range(rank * hook.per_worker, (rank + 1) * hook.per_worker)
    sizes = {"batch_size": MICRO_BATCHES * SIZE, "micro_batches": MICRO_BATCHES, "workers": world}
    for epoch in epochs:
        sampled = shuffled_epoch(STEPS * MICRO_BATCHES * SIZE, seed=0, epoch=epoch, order=0, **sizes)
        for step, _ in enumerate(hook.steps(sampled)):
            x, y = step_data(step, MICRO_BATCHES * SIZE)
            optimizer.zero_grad()
            for i in mine:
                last, piece = i == mine[-1], slice(i * SIZE, (i + 1) * SIZE)
                with nullcontext() if last else ddp.no_sync():
                    nn.functional.cross_entropy(ddp(x[piece]), y[piece]).backward()
                if not last:
                    hook.accumulate()
            optimizer.step()
    return hook.ledger
