"""Algorithm 1 of the paper, line by line and slowly, in one process: what the hook is held against."""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.mechanism import noise_multiplier
from edp.noise.gaussian import add_gaussian_, count_stream, gaussian_, reproducible_key, stream
from edp.per_example import layer_of_parameter, record_per_example
from edp.sampling import Epoch, shuffled_epoch
from edp.spec import EDPSpec

INPUTS, CLASSES = 6, 4
DPSGD_POOL = 12


def small_model() -> nn.Module:
    """Layers of very different sizes and gradient norms."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, CLASSES, bias=False)
    )


def step_data(step: int, batch_size: int, bad: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (B, INPUTS) and classes (B,) of a step; with `bad`, two examples of every second step have it in them."""
    generator = torch.Generator().manual_seed(1000 + step)
    x_bi = torch.randn(batch_size, INPUTS, generator=generator)
    y_b = torch.randint(CLASSES, (batch_size,), generator=generator)
    if bad is not None and step % 2:
        x_bi[0, 1] = x_bi[batch_size // 2 + 1] = bad
    return x_bi, y_b


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def literal_training(
    spec: EDPSpec, *, micro_batches: int, batch_size: int, epochs: int, steps: int, bad: float | None = None
) -> torch.Tensor:
    """Flat weights after `epochs` x `steps` steps of Algorithm 1, and of the clips that may take its clip's place; with
    `bad` in the data, micro-batches whose gradient is not finite are left out."""
    model = small_model()
    optimizer = optimizer_of(model)
    parameters, layer, names = layer_of_parameter(model)
    alpha: list[float] | None = None
    if spec.alpha == "fixed":
        sizes = [sum(p.numel() for p, k in zip(parameters, layer, strict=True) if k == j) for j in range(len(names))]
        total = sum(sizes)
        alpha = [math.sqrt(d / total) for d in sizes]
        alpha = [a / max(alpha) for a in alpha]
    elif spec.alpha == "none":
        alpha = [1.0] * len(names)
    done, C = 0, spec.C
    for epoch in range(epochs):
        for _ in range(steps):
            x, y = step_data(done, batch_size, bad)
            size = batch_size // micro_batches
            count = 0.0
            aggregate = [torch.zeros_like(p) for p in parameters]
            for i in range(micro_batches):
                model.zero_grad()
                piece = slice(i * size, (i + 1) * size)
                nn.functional.cross_entropy(model(x[piece]), y[piece]).backward()
                gradient = [p.grad.clone() for p in parameters]
                if alpha is None:
                    norms = [
                        math.sqrt(sum(float(g.square().sum()) for g, k in zip(gradient, layer, strict=True) if k == j))
                        for j in range(len(names))
                    ]
                    alpha = [n / max(norms) for n in norms]
                scaled = [g / alpha[k] for g, k in zip(gradient, layer, strict=True)]
                norm = math.sqrt(sum(float(g.square().sum()) for g in scaled))
                factor = C / (norm + 0.01) if spec.clip == "automatic" else min(1.0, C / norm)
                clipped = [factor * g for g in scaled]
                if math.isfinite(norm):
                    count += 0.5 if norm <= C else -0.5
                else:
                    clipped = [torch.zeros_like(g) for g in scaled]
                rescaled = [alpha[k] * g for g, k in zip(clipped, layer, strict=True)]
                z = noise_multiplier(spec, epoch)
                # The paper divides each micro-batch's noise by N; for an aggregate of std C·z/N it must be √N.
                divisor = micro_batches if spec.noise == "paper" else math.sqrt(micro_batches)
                if spec.reproducible_noise is not None and z > 0:
                    y_noise = [torch.zeros_like(p) for p in parameters]
                    key = reproducible_key(spec.reproducible_noise)
                    add_gaussian_(y_noise, [C * z] * len(y_noise), stream(key, i, done))
                    for g, noise, k in zip(rescaled, y_noise, layer, strict=True):
                        scale = alpha[k] if spec.alpha_noise == "per_layer" else 1.0
                        g += scale * noise / divisor
                for total_gradient, g in zip(aggregate, rescaled, strict=True):
                    total_gradient += g
            for p, g in zip(parameters, aggregate, strict=True):
                p.grad = g / micro_batches
            optimizer.step()
            if spec.clip == "quantile":
                assert spec.reproducible_noise is not None
                key, sigma = reproducible_key(spec.reproducible_noise), max(micro_batches / 20, 5)
                for i in range(micro_batches):
                    count += float(
                        gaussian_(torch.empty(1), sigma / math.sqrt(micro_batches), count_stream(key, i, done))
                    )
                C *= math.exp(-0.2 * (count / micro_batches + 0.5 - spec.clip_quantile))
            done += 1
    return torch.cat([p.detach().flatten() for p in parameters])


def hook_training(
    rank: int,
    world: int,
    spec: EDPSpec,
    micro_batches: int,
    batch_size: int,
    epochs: int,
    steps: int,
    pieces: int | None = None,
    bad: float | None = None,
) -> tuple[torch.Tensor, Ledger]:
    """The same through DDP and the hook, on one of `world` workers.

    Args:
        pieces: in how many pieces, of several micro-batches each, a worker's share is run; None: one by one.
    """
    model = small_model()
    recorder = record_per_example(model) if pieces is not None else None
    ddp = one_bucket_ddp(model)
    optimizer = optimizer_of(ddp)
    size = batch_size // micro_batches
    hook = EDPHook(
        ddp, spec, micro_batches=micro_batches, single_example=size == 1, rate=1.0 / steps, recorder=recorder
    )
    done = 0
    sizes = {"batch_size": batch_size, "micro_batches": micro_batches, "workers": world}
    for epoch in range(epochs):
        for _ in hook.steps(shuffled_epoch(batch_size * steps, seed=0, epoch=epoch, **sizes)):
            x, y = step_data(done, batch_size, bad)
            optimizer.zero_grad()
            mine = range(rank * micro_batches // world, (rank + 1) * micro_batches // world)
            if recorder is not None:
                in_one_pass(hook, ddp, x, y, [torch.arange(i * size, (i + 1) * size) for i in mine], pieces or 1)
            for i in mine if recorder is None else ():
                last = i == mine[-1]
                with nullcontext() if last else ddp.no_sync():
                    piece = slice(i * size, (i + 1) * size)
                    nn.functional.cross_entropy(ddp(x[piece]), y[piece]).backward()
                if not last:
                    hook.accumulate()
            hook.check()
            optimizer.step()
            done += 1
    assert (hook.dropped > 0) == (bad is not None), "either of two workers has one of them"
    return torch.cat([p.detach().flatten() for p in ddp.parameters()]), hook.ledger


def in_one_pass(
    hook: EDPHook, ddp: nn.Module, x: torch.Tensor, y: torch.Tensor, micro_batches: list[torch.Tensor], pieces: int
) -> None:
    """Backpropagates a worker's micro-batches in so many passes."""
    recorder, cuts = hook.recorder, np.array_split(np.arange(len(micro_batches)), pieces)
    assert recorder is not None
    for cut in cuts:
        last = cut is cuts[-1]
        examples = torch.cat([micro_batches[i] for i in cut])
        sizes = torch.tensor([len(micro_batches[i]) for i in cut])
        micro_batch_b = torch.arange(len(cut)).repeat_interleave(sizes)
        with nullcontext() if last else ddp.no_sync():
            with recorder.examples(micro_batch_b, len(cut)):
                loss_b = nn.functional.cross_entropy(ddp(x[examples]), y[examples], reduction="none")
            (loss_b / sizes[micro_batch_b]).sum().backward()
        if not last:
            hook.accumulate()


def drawn_examples(step: int, workers: int) -> list[list[int]]:
    """Which of a step's examples were drawn, dealt to the workers; some steps leave one without any, or all."""
    rng = np.random.default_rng([step, 5])
    drawn = np.flatnonzero(rng.random(DPSGD_POOL) < (0.0 if step == 1 else 0.5))
    # Dealt independently of how many workers there are, so that only the sum's order may differ.
    place = np.floor(rng.random(DPSGD_POOL) ** 3 * workers).astype(int)
    return [[int(i) for i in drawn if place[i] == worker] for worker in range(workers)]


def literal_dpsgd(spec: EDPSpec, *, expected: int, steps: int) -> torch.Tensor:
    """Flat weights after DP-SGD without noise: the sum of each drawn example's clipped gradient over the fixed N."""
    model = small_model()
    optimizer = optimizer_of(model)
    parameters, layer, names = layer_of_parameter(model)
    sizes = [sum(p.numel() for p, k in zip(parameters, layer, strict=True) if k == j) for j in range(len(names))]
    alpha = [math.sqrt(d / max(sizes)) for d in sizes]
    for step in range(steps):
        x, y = step_data(step, DPSGD_POOL)
        total = [torch.zeros_like(p) for p in parameters]
        for i in drawn_examples(step, 1)[0]:
            model.zero_grad()
            nn.functional.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
            norm = math.sqrt(
                sum(float((p.grad / alpha[k]).square().sum()) for p, k in zip(parameters, layer, strict=True))
            )
            for t, p in zip(total, parameters, strict=True):
                t += min(1.0, spec.C / norm) * p.grad
        for t, p in zip(total, parameters, strict=True):
            p.grad = t / expected
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in parameters])


def hook_dpsgd(
    rank: int, world: int, spec: EDPSpec, expected: int, steps: int, pieces: int | None = None
) -> tuple[torch.Tensor, Ledger]:
    """The same through DDP and the hook: any number of micro-batches of one example on each worker, also none."""
    model = small_model()
    recorder = record_per_example(model) if pieces is not None else None
    ddp = one_bucket_ddp(model)
    optimizer = optimizer_of(ddp)
    hook = EDPHook(
        ddp, spec, micro_batches=expected, single_example=True, rate=expected / DPSGD_POOL, recorder=recorder
    )
    dealt = ([[np.array([i]) for i in mine] for mine in drawn_examples(step, world)] for step in range(steps))
    for step, _ in enumerate(hook.steps(Epoch(0, "poisson", DPSGD_POOL, expected, dealt))):
        x, y = step_data(step, DPSGD_POOL)
        optimizer.zero_grad()
        mine = drawn_examples(step, world)[rank]
        if recorder is not None and mine:
            in_one_pass(hook, ddp, x, y, [torch.tensor([i]) for i in mine], min(pieces or 1, len(mine)))
            optimizer.step()
            continue
        for i in mine[:-1]:
            with ddp.no_sync():
                nn.functional.cross_entropy(ddp(x[i : i + 1]), y[i : i + 1]).backward()
            hook.accumulate()
        last = mine[-1] if mine else 0
        loss = nn.functional.cross_entropy(ddp(x[last : last + 1]), y[last : last + 1])
        (loss if mine else 0.0 * loss).backward()
        hook.check()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in ddp.parameters()]), hook.ledger
