"""bfloat16 where the device multiplies it in hardware."""

from __future__ import annotations

import pytest
import torch

from trainables.features.precision import in_bfloat16

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


def test_this_processor_says_what_it_has() -> None:
    assert torch.cpu.get_capabilities(), "else auto would be float32 everywhere"
