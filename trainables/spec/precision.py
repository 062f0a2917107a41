"""Which products are taken in bfloat16: those that the hardware multiplies so, unless somebody asks."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["auto", "float32", "bfloat16"]
"""`auto` is bfloat16 where the device multiplies it in hardware, else float32. A processor that does not takes some
fifty times as long for it (an EPYC with AVX2 alone: 1.3 against 63 GFLOP/s)."""


def in_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Whether the products of a training on this device are of bfloat16."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(has and "bf16" in name for name, has in torch.cpu.get_capabilities().items())
