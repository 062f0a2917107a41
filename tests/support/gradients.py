"""Gradients compared, and rows as a GPU has them."""

from __future__ import annotations

import torch
from torch import Tensor

from edp.per_example import Rows


def relative(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of a tensor, over its norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))


def filled_up(row_n: Tensor, micro_batch_n: Tensor, micro_batches: int, device: torch.device) -> Rows:
    """`Rows.of` as it is on a GPU."""
    length_m = torch.bincount(micro_batch_n, minlength=micro_batches)
    order_m = length_m.argsort(stable=True)
    order_n = torch.argsort(order_m)[micro_batch_n].argsort(stable=True)
    return Rows.filled_up(row_n[order_n], length_m, order_m, device)
