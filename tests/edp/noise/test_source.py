"""A seed gives the same noise in every version, and a planned run the same ledger, whatever kind of noise it is."""

from __future__ import annotations

import pytest
import torch

import edp.noise.gaussian
from edp.noise.compiled import kernel
from edp.noise.source import noise_source

COMPILED = pytest.mark.skipif(kernel() is None, reason="without a C compiler there is no compiled generator")


@pytest.mark.parametrize(
    ("compiled", "band", "expected"),
    [
        pytest.param(True, 1, [1.70157, 0.0764, -0.95222, -0.40313], marks=COMPILED),
        pytest.param(True, 3, [4.24204, -0.20469, -0.98987, -1.91567], marks=COMPILED),
        (False, 1, [1.49691, -1.00945, 0.43495, -1.17186]),
        (False, 3, [0.91024, -6.93698, 1.8505, -1.1839]),
    ],
)
def test_a_seed_gives_the_noise_that_it_always_gave(
    compiled: bool, band: int, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(edp.noise.gaussian, "kernel", lambda: None)
    buffer = torch.ones(40)
    gradients = [buffer[16:], buffer[:16]]  # DDP's order is not that of the parameters
    source = noise_source(gradients, range(2, 4), seed=7, band=band)
    source.shape = [1.0, 2.0]
    for step in range(5):
        source.add_(buffer, gradients, 0.5, step, clip_factor=torch.tensor(0.5), stretch=1.0)
    assert buffer[[0, 15, 16, 39]].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("band", [1, 3])
def test_a_clip_factor_of_zero_leaves_noise_alone(band: int) -> None:
    buffer, fresh = torch.tensor([torch.nan, torch.inf, 1.0]), torch.zeros(3)
    for x in (buffer, fresh):
        source = noise_source([x], range(1), seed=7, band=band)
        source.add_(x, [x], 0.5, 0, clip_factor=torch.tensor(0.0), stretch=1.0)
    assert torch.equal(buffer, fresh)
    assert buffer.isfinite().all()
