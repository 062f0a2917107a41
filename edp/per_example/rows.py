"""The rows of a layer's input by micro-batch.

A layer sees its input as rows: the tokens of all utterances, or one row an utterance. Records are computed by
micro-batch: inner products of its rows with each other, and products of its inputs and output gradients.

Shapes: n rows of all micro-batches, m micro-batches, d width of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

ROUNDING = 16
"""Allowance for rounding in a sum of products, in units in the last place: twice the error of inner products of 4,096
numbers, added up in sixteen places at once, where each addition is off by chance."""


@dataclass(frozen=True)
class Block:
    """Micro-batches with equally many rows, one after the other."""

    first: int
    micro_batches: int
    rows: int

    @property
    def end(self) -> int:
        """The index after the block's last row."""
        return self.first + self.micro_batches * self.rows


@dataclass(frozen=True)
class Rows:
    """Rows micro-batch by micro-batch, in blocks of equally many rows.

    Rows that are left out must have no gradient: padding, and nothing else. On a GPU all micro-batches are filled up
    to the longest, so that a layer starts a few large kernels instead of many small ones.
    """

    row_n: Tensor
    """Index of each row in the layer's flattened input, int64."""
    micro_batch_n: Tensor
    """The micro-batch of each row, int64."""
    real_n: Tensor | None
    """False on rows that only fill up a block; None where there are none."""
    order_m: Tensor
    """The micro-batches in the order of the blocks."""
    blocks: tuple[Block, ...]
    micro_batches: int

    @classmethod
    def of(cls, row_n: Tensor, micro_batch_n: Tensor, micro_batches: int, device: torch.device) -> Rows:
        """Return the rows `row_n` of the micro-batches `micro_batch_n`; both (N,) int64 on the CPU, in any order."""
        length_m = torch.bincount(micro_batch_n, minlength=micro_batches)
        order_m = length_m.argsort(stable=True)
        rank_m = torch.empty_like(order_m)
        rank_m[order_m] = torch.arange(micro_batches)
        order_n = rank_m[micro_batch_n].argsort(stable=True)
        row_n, micro_batch_n = row_n[order_n], micro_batch_n[order_n]
        if device.type != "cpu":
            return cls.filled_up(row_n, length_m, order_m, device)
        kinds, counts = length_m[order_m].unique_consecutive(return_counts=True)
        blocks, first = [], 0
        for rows, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            if rows:
                blocks.append(Block(first, count, rows))
                first = blocks[-1].end
        return cls(row_n, micro_batch_n, None, order_m[length_m[order_m] > 0], tuple(blocks), micro_batches)

    @classmethod
    def filled_up(cls, row_n: Tensor, length_m: Tensor, order_m: Tensor, device: torch.device) -> Rows:
        """Fill up all micro-batches to the longest one, which makes one block of them.

        Args:
            row_n: rows micro-batch by micro-batch, in the order `order_m`; a micro-batch has `length_m` rows.
        """
        longest = max(1, int(length_m.max()))
        real_mt = torch.arange(longest) < length_m[order_m][:, None]
        row_mt = torch.zeros_like(real_mt, dtype=torch.long)
        row_mt[real_mt] = row_n
        micro_batch_n = order_m.repeat_interleave(longest)
        return cls(
            row_n=row_mt.flatten().to(device, non_blocking=True),
            micro_batch_n=micro_batch_n.to(device, non_blocking=True),
            real_n=real_mt.flatten().to(device, non_blocking=True),
            order_m=order_m.to(device, non_blocking=True),
            blocks=(Block(0, len(order_m), longest),),
            micro_batches=len(length_m),
        )

    def holds_gradients(self, width: int, outputs: int) -> bool:
        """Return True if gradients (outputs, width) of all micro-batches take no more memory than their rows."""
        return self.micro_batches * width * outputs <= len(self.row_n) * (width + outputs)

    @cached_property
    def widest_gram(self) -> int:
        """Number of entries of the Gram matrices of all micro-batches."""
        return sum(block.micro_batches * block.rows**2 for block in self.blocks)

    def take(self, x: Tensor) -> Tensor:
        """Return the rows of `x` (…, d) as (N, d); 0 on rows that only fill up, whose values are another example's."""
        x_nd = x.reshape(-1, x.shape[-1]).index_select(0, self.row_n)
        return x_nd if self.real_n is None else x_nd.masked_fill_(~self.real_n[:, None], 0)

    def gram(self, x_nd: Tensor) -> Tensor:
        """Return the inner products of all pairs of rows of a micro-batch, flat, block after block."""
        flat = x_nd.new_empty(self.widest_gram)
        done = 0
        for block in self.blocks:
            x = x_nd[block.first : block.end].view(block.micro_batches, block.rows, -1)
            size = block.micro_batches * block.rows**2
            out = flat[done : done + size].view(block.micro_batches, block.rows, block.rows)
            torch.bmm(x, x.transpose(1, 2), out=out)
            done += size
        return flat

    def sum_of_pairs(self, pairs: Tensor) -> Tensor:
        """Return `Σ_{t,t'} ⟨x_t, x_t'⟩⟨g_t, g_t'⟩` of each micro-batch, never too small: (M,).

        Where rows cancel, rounding is all that is left of the sum, and with a norm that is too small the clip
        lets more than C through. So the sum gets `ROUNDING` units in the last place of `(Σ_t ‖x_t‖‖g_t‖)²` on top,
        a bound of what rounding may have taken.

        Args:
            pairs: products of Gram matrices, as `gram` returns them.
        """
        allowed, sums, done = ROUNDING * torch.finfo(pairs.dtype).eps, [], 0
        for block in self.blocks:
            size = block.micro_batches * block.rows**2
            pairs_mtt = pairs[done : done + size].view(block.micro_batches, block.rows, block.rows)
            longest_m = pairs_mtt.diagonal(dim1=1, dim2=2).sqrt().sum(1)
            # Not `index_add_`: it adds one after the other, and in float32 stops growing at 2²⁴ times an addend.
            sums.append(pairs_mtt.flatten(1).sum(1).addcmul_(longest_m, longest_m, value=allowed))
            done += size
        found = pairs.new_zeros(self.micro_batches)
        return found.index_copy_(0, self.order_m, torch.cat(sums)) if sums else found

    def products(self, x_ni: Tensor, g_no: Tensor) -> Tensor:
        """Return `Σ g xᵀ` over the rows of each micro-batch, (M, O, I), in the order `order_m`."""
        found = x_ni.new_empty(len(self.order_m), g_no.shape[1], x_ni.shape[1])
        done = 0
        for block in self.blocks:
            rows, shape = slice(block.first, block.end), (block.micro_batches, block.rows, -1)
            g, x = g_no[rows].view(shape), x_ni[rows].view(shape)
            torch.bmm(g.transpose(1, 2), x, out=found[done : done + block.micro_batches])
            done += block.micro_batches
        return found

    def sums(self, values_n: Tensor) -> Tensor:
        """Return the sums of rows (N, …) by micro-batch, (M, …)."""
        return values_n.new_zeros(self.micro_batches, *values_n.shape[1:]).index_add_(0, self.micro_batch_n, values_n)
