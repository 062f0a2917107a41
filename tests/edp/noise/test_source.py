"""A seed gives the same noise in every version, and a planned run the same ledger, whatever kind of noise it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import edp.noise.gaussian
from edp.ledger import Ledger, planned_ledger
from edp.noise.compiled import kernel
from edp.noise.source import noise_source
from edp.spec import EDPSpec

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


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ({}, {"correlation": "none", "band": 1, "noise_std": 0.125}),
        ({"noise_correlation": "banded"}, {"correlation": "banded", "band": 16, "noise_std": 0.361632}),
    ],
)
def test_a_planned_run_has_the_ledger_that_it_always_had(settings: dict[str, Any], recorded: dict[str, Any]) -> None:
    run = {"epochs": 1, "micro_batches": 8, "steps_per_epoch": 20, "rate": 0.05, "single_example": False}
    written = planned_ledger(EDPSpec(C=0.5, z0=2.0, **settings), **run).model_dump_json()
    document = json.loads(written)
    assert document["entries"][0].pop("noise_std") == pytest.approx(recorded.pop("noise_std"), rel=1e-5)
    mechanism = {
        "C": 0.5,
        "z": 2.0,
        "N": 8,
        "noise": "corrected",
        "alpha": "fixed",
        "alpha_noise": "isotropic",
        "max_alpha": 1.0,
        "unit": "example",
        "sampling": "shuffle",
        "rate": 0.05,
        "single_example": False,
        "replayable": False,
        "clip": "fixed",
        "count_std": 0.0,
        **recorded,
    }
    expected = {
        "private": True,
        "alpha_release": None,
        "entries": [{"epoch": 0, "steps": 20, "mechanism": mechanism}],
        "not_executed": [],
        "discarded": [],
        "most_of_a_user": None,
    }
    assert json.dumps(document) == json.dumps(expected), "the same fields in the same order"
    assert Ledger.model_validate_json(written).model_dump_json() == written
