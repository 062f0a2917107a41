"""bfloat16 where the device multiplies it in hardware, and models that fit into a GPU's memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edp.spec import UserError
from trainables.features.device import check_memory, in_bfloat16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False}, False),
        ({"avx2": True, "avx512_bf16": True}, True),
        ({"avx512_f": True, "amx_bf16": True}, True),
        ({}, False),
    ],
)
def test_auto_follows_the_processor(
    capabilities: dict[str, bool], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert in_bfloat16("auto", CPU) is expected
    assert in_bfloat16("bfloat16", CPU)
    assert not in_bfloat16("float32", CPU)


@pytest.mark.stress
def test_weights_are_counted_in_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.ModuleList([nn.Linear(1 << 14, 1 << 14, bias=False), nn.Linear(1 << 14, 1 << 13, bias=False).bfloat16()])
    needed = (1 << 30) + (1 << 28)
    for free, device, fits in ((needed, "cuda", True), (needed - 1, "cuda", False), (0, "cpu", True)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 1 << 34))
        if fits:
            check_memory(model, torch.device(device), "large", "nothing else")
        else:
            says = "model.pretrained = large: its weights take 1.2 GiB, and the GPU has 1.2 GiB free; allowed: fewer "
            with pytest.raises(UserError, match=says):
                check_memory(model, torch.device(device), "large", "nothing else")


@pytest.mark.slow
def test_workers_that_share_a_gpu_each_have_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(1 << 14, 1 << 13, bias=False)  # half a GiB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1 << 30, 1 << 30))
    check_memory(model, torch.device("cuda"), "large", "nothing else", share=0.5)
    says = r"take 0.5 GiB, and a worker's share of the GPU is 0.2 GiB \(resources.gpus_per_worker\); allowed: fewer "
    with pytest.raises(UserError, match=says):
        check_memory(model, torch.device("cuda"), "large", "nothing else", share=0.25)
