"""The benchmarks of a GPU: their parts run on a CPU, and without a GPU the script says so."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks import decoder

SMALL = ["hidden_size=32", "num_hidden_layers=2", "num_attention_heads=4", "intermediate_size=48", "vocab_size=600"]


@pytest.mark.slow
def test_a_small_decoder_is_measured_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    decoder.main([*SMALL, "--device", "cpu", "--batch-size", "8", "--rounds", "2"])
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["rows"]] == list(decoder.METHODS)
    assert found["rows"][0]["ratio"] == 1
    assert all(row["utterances_per_second"] > 0 for row in found["rows"])
