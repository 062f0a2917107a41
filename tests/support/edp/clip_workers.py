"""What workers do in the tests of the clip."""

from __future__ import annotations

import torch
from torch import nn

from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.spec import EDPSpec
from tests.support.edp.literal import optimizer_of, small_model, step_data
from tests.support.steps import open_step


def clips(rank: int, world: int, spec: EDPSpec, steps: int, cut_after: int | None) -> tuple[list[float], torch.Tensor]:
    """The clip after each step of two micro-batches of three examples, and the weights at the end.

    With `cut_after` another hook goes on after so many steps, as in a run that is resumed.
    """
    model = small_model()
    found: list[float] = []
    ledger, clip = Ledger(), None
    parts = [range(steps)] if cut_after is None else [range(cut_after), range(cut_after, steps)]
    for part in parts:
        ddp = one_bucket_ddp(model)
        optimizer = optimizer_of(ddp)
        hook = EDPHook(ddp, spec, micro_batches=2, single_example=False, rate=1.0, ledger=ledger, clip=clip)
        for step in part:
            open_step(hook, step)
            x, y = step_data(step, 6)
            optimizer.zero_grad()
            mine = range(rank * 2 // world, (rank + 1) * 2 // world)
            for i in mine:
                loss = nn.functional.cross_entropy(ddp.module(x[3 * i : 3 * i + 3]), y[3 * i : 3 * i + 3])
                if i != mine[-1]:
                    loss.backward()
                    hook.accumulate()
                else:
                    nn.functional.cross_entropy(ddp(x[3 * i : 3 * i + 3]), y[3 * i : 3 * i + 3]).backward()
            optimizer.step()
            found.append(hook.clip_state)
        ledger, clip = hook.ledger, hook.clip_state
    return found, torch.cat([p.detach().flatten() for p in model.parameters()])


class NoGradient(nn.Module):
    """A model whose gradient is zero, so that the aggregate is pure noise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(100_000))

    def forward(self) -> torch.Tensor:
        return (self.weight * 0.0).sum()


def noise_at(rank: int, world: int, spec: EDPSpec, clip: float) -> torch.Tensor:
    """The noise of a step of a run that goes on with `clip`, one micro-batch a worker."""
    ddp = one_bucket_ddp(NoGradient())
    open_step(EDPHook(ddp, spec, micro_batches=world, single_example=False, rate=1.0, clip=clip))
    ddp().backward()
    return ddp.module.weight.grad.clone()


def executed(rank: int, world: int, spec: EDPSpec) -> Ledger:
    """The ledger of one step of two micro-batches of one example."""
    ddp = one_bucket_ddp(small_model())
    hook = EDPHook(ddp, spec, micro_batches=2, single_example=True, rate=1.0)
    open_step(hook)
    for i in range(2 // world):
        x, y = step_data(rank + i, 1)
        if i == 2 // world - 1:
            nn.functional.cross_entropy(ddp(x), y).backward()
        else:
            nn.functional.cross_entropy(ddp.module(x), y).backward()
            hook.accumulate()
    return hook.ledger
