"""Dropout by utterance: an utterance's own key decides what is dropped, not the other utterances of the batch.

So a step gives the same weights however many workers share it, and in whatever chunks they run it. A hash of
(utterance, layer, position) decides whether a number is dropped, which takes less time on a CPU than PyTorch's
generator. An utterance's key depends on what it holds and on a secret of the run, never on its place: masks that move
with a place would let one utterance change the gradients of all later ones, each by up to twice the clip.

Shapes: b utterances, j the last axis.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ODD = 0x45D9F3B
_ATTENTION = "keyed_dropout"


class DropoutKeys:
    """The keys of a batch's utterances, in one object that all dropout layers of a model share.

    `key_b` is (B,) int32 on the model's device. If it is None, PyTorch's generator draws.
    """

    key_b: Tensor | None = None

    def rows(self, number: int, *positions: int) -> Tensor | None:
        """Return a key for each row, of utterance b at each position: (B, *positions).

        Args:
            number: the number of the layer.
            positions: sizes of the axes between the utterance and the last one.
        """
        if self.key_b is None:
            return None
        row = _mix(self.key_b ^ _int32((number + 1) * 0x9E3779B1))
        for size in positions:
            row = _mix(row[..., None] + torch.arange(size, dtype=torch.int32, device=row.device))
        return row


class KeyedDropout(nn.Dropout):
    """An `nn.Dropout` of a model whose `dropout_keys` identify the utterances of a batch.

    Args:
        number: the number of the layer, different for all layers of a model.
    """

    def __init__(self, p: float, keys: DropoutKeys, number: int) -> None:
        super().__init__(p)
        self.dropout_keys, self.number = keys, number

    def forward(self, input: Tensor, flat_n: Tensor | None = None, steps: int = 0) -> Tensor:
        """Drop numbers of (B, …, J), or of rows (N, J) at the places `flat_n` of a flattened (B, `steps`)."""
        if not self.training or self.p == 0:
            return input
        row = self.dropout_keys.rows(self.number, *(input.shape[1:-1] if flat_n is None else (steps,)))
        # An input without a row for each utterance, such as a bias of positions, has no keys: `check_encoder` refuses
        # an encoder whose utterances meet in it.
        if row is None or (flat_n is None and len(row) != len(input)):
            return F.dropout(input, self.p)
        return keyed_dropout(input, self.p, row if flat_n is None else row.flatten()[flat_n])


def keyed_dropout(x: Tensor, p: float, row: Tensor) -> Tensor:
    """Return `x` (…, J) with each number set to 0 with probability `p`, decided by its row's key (…) and its column."""
    column_j = _mix(_int32(0x7FEB352D) + torch.arange(x.shape[-1], dtype=torch.int32, device=x.device))
    # The hash is computed in place, since it has one number for every number of the batch.
    hashed = row[..., None] + column_j
    for _ in range(2):
        hashed.bitwise_xor_(hashed >> 16).mul_(_ODD)
    return x * (hashed >= int(p * 2**32) - 2**31).to(x.dtype).mul_(1 / (1 - p))


def take_along(encoder: nn.Module, keys: DropoutKeys, first: int) -> None:
    """Replace the dropout layers of a Hugging Face encoder by keyed ones, numbered from `first`."""
    number = first
    for module in list(encoder.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, KeyedDropout(child.p, keys, number))
                number += 1
    config: Any = encoder.config
    if config._attn_implementation != "sdpa":
        return  # other implementations drop with a layer, replaced above, or with PyTorch's generator
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rest: Any
    ) -> tuple[Tensor, Tensor | None]:
        keyed = getattr(module, "dropout", getattr(module, "attention_dropout", None))  # the latter is ALBERT's
        p, scaling = rest.get("dropout", 0.0), rest.get("scaling")
        row = (
            keyed.dropout_keys.rows(keyed.number, *query.shape[1:3]) if p and isinstance(keyed, KeyedDropout) else None
        )
        if row is None or len(row) != len(query):
            found: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
                module, query, key, value, attention_mask, **rest
            )
            return found
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))  # grouped queries
        score = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if attention_mask is not None:
            score = score.masked_fill(~attention_mask, torch.finfo(score.dtype).min)
        return (keyed_dropout(score.softmax(-1), p, row) @ value).transpose(1, 2).contiguous(), None

    def mask(*shape: Any, **options: Any) -> Any:
        # To skip the mask if nothing is padded, Transformers would wait for the GPU in every step.
        return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](*shape, **options | {"allow_is_bidirectional_skip": False})

    AttentionInterface.register(_ATTENTION, attention)
    AttentionMaskInterface.register(_ATTENTION, mask)
    config._attn_implementation = _ATTENTION


def _mix(x: Tensor) -> Tensor:
    """Return a hash of each number."""
    for _ in range(2):
        x = (x ^ (x >> 16)) * _ODD
    return x ^ (x >> 16)


def _int32(value: int) -> int:
    """Return the int32 with the low 32 bits of `value`."""
    return (value + 2**31) % 2**32 - 2**31
