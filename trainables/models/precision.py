"""Which products are taken in bfloat16: those that the hardware multiplies so, unless somebody asks."""

from __future__ import annotations

import torch

from trainables.spec import Precision


def in_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Whether the products of a training on this device are of bfloat16."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(has and "bf16" in name for name, has in torch.cpu.get_capabilities().items())
