"""The device of an encoder: the types that it multiplies in hardware, and whether the weights fit into its memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edp.spec import UserError
from trainables.config import Precision


def in_bfloat16(precision: Precision, device: torch.device) -> bool:
    """Return True if training on this device takes products in bfloat16."""
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return any(has and "bf16" in name for name, has in torch.cpu.get_capabilities().items())


def frozen_device() -> torch.device:
    """Return the device that computes the states of a frozen encoder in this process: a GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def frozen_type(config: Any, device: torch.device) -> torch.dtype:
    """Return the type of a frozen encoder's weights on a device: bfloat16 if its `config.json` says so, else float32.

    A device that does not multiply bfloat16 in hardware takes some fifty times as long with it, and gets float32. So do
    weights that were saved in float16, whose range the values between a model's layers may exceed.
    """
    low = config.dtype == torch.bfloat16 and in_bfloat16("auto", device)
    return torch.bfloat16 if low else torch.float32


def check_memory(model: nn.Module, device: torch.device, name: str, instead: str, share: float = 1.0) -> None:
    """Raise if a model's weights, in their types, take more than the free memory of a GPU, or than a process' share.

    One process holds a whole model, on one device (`docs/models.md` has the reason). Processes that share a GPU load
    their models at the same time, so that each finds the memory free.

    Args:
        name: the user's name for the pretrained model.
        instead: what is allowed besides smaller models.
        share: of the GPU that this process has.
    """
    if device.type != "cuda":
        return
    needed = sum(p.numel() * p.element_size() for p in model.parameters())
    free, whole = torch.cuda.mem_get_info(device)
    if needed > min(free, share * whole):
        room = f"the GPU has {free / 2**30:.1f} GiB free"
        if needed <= free:
            room = f"a worker's share of the GPU is {share * whole / 2**30:.1f} GiB (resources.gpus_per_worker)"
        raise UserError(
            f"model.pretrained = {name}: its weights take {needed / 2**30:.1f} GiB, and {room}; allowed: fewer "
            f"model.layers, a smaller model, {instead}"
        )
