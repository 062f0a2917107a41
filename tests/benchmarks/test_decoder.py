"""The benchmarks of a GPU: their parts run on a CPU, and without a GPU the script says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.benchmarks import decoder

SMALL = ["hidden_size=32", "num_hidden_layers=2", "num_attention_heads=4", "intermediate_size=48", "vocab_size=600"]


@pytest.mark.slow
def test_a_small_decoder_is_measured_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    decoder.main([*SMALL, "--device", "cpu", "--batch-size", "8", "--rounds", "2"])
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["rows"]] == list(decoder.METHODS)
    assert found["rows"][0]["ratio"] == 1
    assert all(row["utterances_per_second"] > 0 for row in found["rows"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, which the script would measure for minutes")
def test_without_a_gpu_the_script_says_so_and_writes_nothing() -> None:
    script = Path(__file__).with_name("on_a_gpu.sh")
    before = {path: path.stat().st_mtime_ns for path in script.with_name("results").iterdir()}
    ran = subprocess.run(["sh", script, sys.executable], check=False, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 1
    assert ran.stderr.strip() == "on_a_gpu.sh: PyTorch sees no CUDA device here; nothing was measured"
    assert {path: path.stat().st_mtime_ns for path in script.with_name("results").iterdir()} == before
