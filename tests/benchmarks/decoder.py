"""The time of private LoRA on a decoder of random weights, as a ratio to plain SGD of the same adapters. By hand:

    python -m tests.benchmarks.decoder [--device cuda] [--batch-size N] [--rounds N] [KEY=N …]

The decoder is of Qwen's kind, by default of Qwen2.5-0.5B's sizes; KEY=N are other sizes of its configuration. Methods
take turns, and run a whole batch at once. Prints one JSON document: for each method the median ratio of wall time,
utterances a second, and the largest memory above what is there before the step: of tensors on a GPU, else of the
process. Random weights take the time of trained ones.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2Model

from tests.benchmarks import methods
from tests.benchmarks.machine import about
from tests.support.encoder_folders import QWEN, split_byte_pairs
from trainables.config import BERTSpec, TrialSpec

SIZES = {
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "vocab_size": 151_936,
}
METHODS = ("sgd:trainable=lora", "dpsgd:trainable=lora", "dpsgd:trainable=lora+gradient_checkpointing=true")


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", metavar="KEY=N")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args(words)
    if asked.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device = cuda: this process sees no CUDA device; allowed: cpu")
    sizes = SIZES | {key: int(value) for key, _, value in (size.partition("=") for size in asked.sizes)}
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        rows = measure(Path(folder), sizes, asked.device, asked.batch_size, asked.rounds)
        dist.destroy_process_group()
    print(
        json.dumps(about("decoder", words) | {"sizes": sizes, "batch_size": asked.batch_size, "rows": rows}, indent=1)
    )


def measure(folder: Path, sizes: dict[str, int], device: str, batch_size: int, rounds: int) -> list[dict[str, Any]]:
    """A row for each method."""
    spec = spec_of(decoder(folder / "decoder", sizes), batch_size)
    data = methods.encoded(spec, folder / "corpus")
    steps, seconds, memory = {}, {method: [] for method in METHODS}, dict.fromkeys(METHODS, 0)
    for method in METHODS:
        steps[method] = methods.stepper(method, spec, data, torch.device(device))
    for number in range(rounds + 1):
        for method in METHODS:
            _wait(device)
            before = _start_peak(device)
            begin = time.perf_counter()
            steps[method]()
            _wait(device)
            if number:  # the first one warms up
                seconds[method].append(time.perf_counter() - begin)
            memory[method] = max(memory[method], _peak(device) - before)
    base = median(seconds[METHODS[0]])
    return [
        {
            "method": method,
            "ratio": round(median(seconds[method]) / base, 3),
            "utterances_per_second": round(batch_size / median(seconds[method]), 1),
            "memory_mib": round(memory[method] / 2**20),
        }
        for method in METHODS
    ]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _start_peak(device: str) -> int:
    """Forget the largest memory until now; return the memory in bytes."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what glibc keeps for later would hide a smaller peak
    Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def _peak(device: str) -> int:
    """Return the largest memory in bytes since `_start_peak`."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else _resident("VmHWM")


def _resident(field: str) -> int:
    """Return this process' memory in bytes as Linux counts it: VmRSS, now; VmHWM, at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def decoder(folder: Path, sizes: dict[str, int]) -> Path:
    """Write a decoder of random weights and a tokenizer to a folder."""
    tokenizer = split_byte_pairs(QWEN, ["<|endoftext|>"], "")
    Qwen2Model(Qwen2Config(**sizes, eos_token_id=0, bos_token_id=0)).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def spec_of(folder: Path, batch_size: int) -> TrialSpec:
    """Return the spec of a benchmark's training of the decoder in a folder."""
    spec = methods.bench_spec("bert", {"name": "communication", "utterances": 2000}, batch_size=batch_size, workers=1)
    assert isinstance(spec.model, BERTSpec)
    changed = {"pretrained": str(folder), "trainable": "lora", "sentence": "last"}
    whole = {"training": spec.training.model_copy(update={"memory_batch": batch_size})}
    return spec.model_copy(update=whole | {"model": spec.model.model_copy(update=changed)})


if __name__ == "__main__":
    main(sys.argv[1:])
