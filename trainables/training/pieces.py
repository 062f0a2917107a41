"""How a worker's share of a step is run: in pieces that fit into memory, which change nothing but the order of a sum.

A piece is several whole micro-batches, which one backward pass clips apart (`edp.per_example`), or a part of one that
is larger than a piece: its gradients are added up before they are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from edp.sampling import Indices

_CPU_BYTES = 1 << 30
_GPU_SHARE = 0.25
# What the recorder holds until the clips are known, and the gradients on their way, over what a forward pass saves.
_BACKWARD = 2.0


@dataclass(frozen=True)
class Piece:
    """Examples that are run together."""

    indices: Indices
    micro_batch_b: Indices
    """The micro-batch of each, counted from 0 within the piece."""
    weight_b: np.ndarray
    """Of each one's loss: one over the examples of its micro-batch, which makes it their mean, or 1 for their sum; 0 of
    one that stands for nothing. float32."""
    micro_batches: int
    """How many it holds, some perhaps empty."""
    ends: bool
    """Whether its micro-batches end with it; False: only the part of one, which goes on in the next piece."""


def pieces(
    micro_batches: Sequence[Indices], most: int, order: Callable[[Indices], np.ndarray], *, sums: bool = False
) -> list[Piece]:
    """Cuts a worker's micro-batches into pieces of at most `most` examples.

    Args:
        micro_batches: the examples of each; some may be empty.
        order: gives the size of examples, by which those that are run together are chosen and sorted: alike ones have
            less padding.
        sums: whether what counts of a micro-batch is the sum of its losses, not their mean.
    """
    found: list[Piece] = []
    waiting: list[Indices] = []

    def end() -> None:
        if waiting:
            found.append(_joined(waiting, order))
            waiting.clear()

    room = most
    for examples in sorted(micro_batches, key=lambda indices: float(order(indices).sum())):
        if len(examples) > most:
            sorted_examples = examples[np.argsort(order(examples), kind="stable")]
            parts = np.array_split(sorted_examples, -(-len(examples) // most))
            found.extend(_part(part, len(examples), ends=part is parts[-1]) for part in parts)
            continue
        if len(examples) > room:
            end()
            room = most
        room -= len(examples)
        waiting.append(examples)
    end()
    return [replace(piece, weight_b=np.sign(piece.weight_b)) for piece in found] if sums else found


def _joined(micro_batches: list[Indices], order: Callable[[Indices], np.ndarray]) -> Piece:
    sizes = np.array([len(examples) for examples in micro_batches])
    indices, micro_batch_b = np.concatenate(micro_batches), np.repeat(np.arange(len(sizes)), sizes)
    if len(indices) == 0:
        # Every worker must reach the all-reduce: nothing at all is one example of weight 0.
        return Piece(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32), len(sizes), True)
    # By size, unless each is a micro-batch of its own: these come by size already, and stay in their order.
    by_size = np.argsort(order(indices), kind="stable")
    indices, micro_batch_b = indices[by_size], micro_batch_b[by_size]
    return Piece(indices, micro_batch_b, (1 / sizes[micro_batch_b]).astype(np.float32), len(sizes), True)


def _part(indices: Indices, examples: int, *, ends: bool) -> Piece:
    weight_b = np.full(len(indices), 1 / examples, np.float32)
    return Piece(indices, np.zeros(len(indices), np.int64), weight_b, 1, ends)


def examples_that_fit(model: nn.Module, batch: Any, device: torch.device, gpu_share: float = 1.0) -> int:
    """How many examples like those of `batch` a piece may hold: at least 1.

    A GiB on a CPU, where larger pieces are no faster, and a quarter of what this worker has of a GPU's memory. It
    depends on the kind of machine and that share, not on what else runs: a run can be repeated bit by bit.

    Args:
        gpu_share: what the worker has of its GPU, 1 or more for all of it.
    """
    saved: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    was_training = model.training
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model.train()(batch)
    model.train(was_training)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = sum(x.untyped_storage().nbytes() for place, x in saved.items() if place not in weights)
    per_example = max(1.0, _BACKWARD * seen / len(batch))
    budget = float(_CPU_BYTES)
    if device.type == "cuda":
        budget = torch.cuda.get_device_properties(device).total_memory * _GPU_SHARE * min(1.0, gpu_share)
    return max(1, int(budget / per_example))
