"""Models whose examples meet, or that follow their data, each in one way."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.edp.literal import INPUTS


class Loss(nn.Module):
    """A loss of each example, after `between`; and what `reduce` makes of the losses."""

    def __init__(self, between: nn.Module, reduce: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.between, self.last, self.reduce = nn.Linear(INPUTS, 8), between, nn.Linear(8, 1), reduce

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss_b = 1 + self.last(self.between(self.first(x).tanh())).square().flatten()
        tokens = x.gt(-1.5).sum()
        return {
            "none": loss_b,
            "sum": loss_b.sum(),
            "mean over tokens": loss_b.sum() / tokens,
            "divided by len": loss_b / len(x),
        }[self.reduce]


class Gate(nn.Module):
    """Lets examples meet from some pass over several examples on."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passes = passes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes -= 1
        return x + x.mean(0) if self.passes < 0 else x


class Codebook(nn.Module):
    """Follows the data from its third step on, as an average that is not trained."""

    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        self.calls, codes = 0, torch.zeros(8)
        if buffer:
            self.register_buffer("codes", codes)
        else:
            self.codes = nn.Parameter(codes, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > 10:
            self.codes.data.lerp_(x.detach().mean(0), 0.1)
        return x


class ActNorm(nn.Module):
    """Sets its scale to that of the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ready = nn.LayerNorm(8), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.ready and len(x) > 1:
            self.ready = True
            with torch.no_grad():
                self.norm.weight.div_(x.std(0) + 1)
        return self.norm(x)


class OverBatch(torch.autograd.Function):
    """The identity, whose gradient is divided by the batch's length."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / gradient.norm()


class Normalised(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return OverBatch.apply(x)
