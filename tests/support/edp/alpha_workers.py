"""What workers do in the tests of the layer scales: apart from those, whose imports take each process seconds."""

from __future__ import annotations

import torch
from torch import nn

from edp.alpha import gradient_layer_norms, private_alpha
from edp.hook import EDPHook, one_bucket_ddp
from edp.ledger import Ledger
from edp.spec import EDPSpec
from tests.support.edp.literal import small_model, step_data
from tests.support.steps import open_step


def batch_loss(model: nn.Module, size: int = 32) -> torch.Tensor:
    x, y = step_data(0, size)
    return nn.functional.cross_entropy(model(x), y)


def estimate(rank: int, world: int, votes_in_all: int, z: float, seed: int | None) -> torch.Tensor:
    rows = torch.tensor([[1.0, 2.0, 0.01, 0.5]]).repeat(votes_in_all, 1)[rank::world]
    return private_alpha(rows, z=z, reproducible_noise=seed)[0]


def run_once(rank: int, world: int) -> Ledger:
    model = small_model()
    rows = torch.stack([gradient_layer_norms(model, batch_loss(model, 1))])
    spec = EDPSpec(alpha="private")
    alpha, release = private_alpha(rows)
    ddp = one_bucket_ddp(model)
    start = Ledger(alpha_release=release)
    hook = EDPHook(ddp, spec, micro_batches=2, single_example=False, rate=1.0, ledger=start, alpha=alpha)
    open_step(hook)
    batch_loss(ddp).backward()
    return hook.ledger


def without_scales(rank: int, world: int, alpha: str) -> str:
    try:
        ddp = one_bucket_ddp(small_model())
        EDPHook(ddp, EDPSpec(alpha=alpha), micro_batches=1, single_example=False, rate=1.0)
    except ValueError as error:
        return str(error)
    return "went on"
