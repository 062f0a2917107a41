"""Public moments of an encoder's states, and the whitening that follows from them.

Mean and covariance come from public corpora alone, so what is whitened by them is as private as before, and they go
with a released model.

Shapes: n states, h hidden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.records.files import reading

RIDGE = 1e-3
"""Added to each eigenvalue, times their mean: directions that hardly vary in public are not blown up."""
CONSTANT = 0.5
"""What stands after a whitened vector: the heads' bias is its weight."""


@dataclass(frozen=True)
class Moments:
    """Mean (H,) of states, and eigenvalues (H,) and eigenvectors (H, H), in columns, of their covariance; float64."""

    mean_h: Tensor
    values_h: Tensor
    vectors_hh: Tensor

    @classmethod
    def of(cls, corpora: Iterable[tuple[int, Tensor, Tensor]]) -> Moments:
        """Of corpora that count the same each: number of states, their sum (H,) and sum of x xᵀ (H, H)."""
        firsts, seconds = zip(*((sum_h / n, sum_hh / n) for n, sum_h, sum_hh in corpora), strict=True)
        mean_h = torch.stack(firsts).mean(0)
        covariance_hh = torch.stack(seconds).mean(0) - torch.outer(mean_h, mean_h)
        values_h, vectors_hh = torch.linalg.eigh(covariance_hh)
        return cls(mean_h, values_h.clamp_min(0), vectors_hh)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, mean=self.mean_h, values=self.values_h, vectors=self.vectors_hh)

    @classmethod
    def load(cls, path: Path) -> Moments:
        with reading(path), np.load(path) as saved:
            return cls(*(torch.from_numpy(saved[name]) for name in ("mean", "values", "vectors")))

    def whitener(self, exponent: float) -> Whitener:
        """Divides the standard deviation in each eigendirection by its `exponent`-th power, then all by one number.

        In public the squared length of what comes out is 1 on average.
        """
        ridged_h = self.values_h + RIDGE * self.values_h.mean()
        projection_hh = self.vectors_hh * ridged_h.pow(-exponent / 2)
        projection_hh = projection_hh / (self.values_h * ridged_h.pow(-exponent)).sum().sqrt()
        return Whitener(self.mean_h.float(), projection_hh.float())


@dataclass(frozen=True)
class Whitener:
    """`x → (x - mean) P`."""

    mean_h: Tensor
    projection_hh: Tensor

    def __call__(self, x_nh: Tensor) -> Tensor:
        return (x_nh - self.mean_h) @ self.projection_hh


def whitened(whiteners: Sequence[Whitener], parts: Sequence[Tensor]) -> Tensor:
    """Parts (…, H) whitened, side by side, and the constant: (…, parts·H + 1).

    Each has an equal share of the squared length.
    """
    blocks = [whitener(part) / sqrt(len(parts)) for whitener, part in zip(whiteners, parts, strict=True)]
    return torch.cat([*blocks, torch.full_like(blocks[0][..., :1], CONSTANT)], -1)
