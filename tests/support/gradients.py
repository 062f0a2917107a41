"""How far two gradients are apart."""

from __future__ import annotations

from torch import Tensor


def relative(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of a tensor, over its norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
