"""Time an epoch and memory of a worker, from 10,000 to 1,000,000 generated utterances. Too long for CI; by hand:

    python -m tests.benchmarks.scale [UTTERANCES …]

The quickstart's model, one worker with all eight micro-batches, one epoch of eDP-SGD a size. Encoding and training are
processes of their own, so that each one's peak of resident memory is its own. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

SIZES = (10_000, 100_000, 1_000_000)


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    from tests.benchmarks.machine import machine, versions

    rows = []
    for size in [int(word) for word in words] or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            row: dict[str, Any] = {"utterances": size}
            for what in ("encode", "train"):
                call = [sys.executable, "-m", "tests.benchmarks.scale", what, str(size), folder]
                done = subprocess.run(
                    call, check=True, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"}
                )
                row |= json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    command = " ".join(["python -m tests.benchmarks.scale", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"rows": rows}, indent=1))


def child(what: str, size: int, folder: Path) -> dict[str, float]:
    """Encodes the corpus of `size` utterances below `folder`, or trains on it for an epoch."""
    from sweeps.config.loading import load_recipe
    from sweeps.engine.prepare import encode_missing, read_missing
    from sweeps.store.prepared import locate

    settings = [f"corpus.utterances={size}", "training.workers=1", "training.epochs=1"]
    _, recipe = load_recipe("quickstart_paper", settings)
    spec = recipe.trial({"C": 1.0, "z0": 0.01, "decay": "none", "tau": 0.0})
    prepared = locate(spec, folder / "cache")
    if what == "encode":
        began = time.perf_counter()
        encode_missing(spec, prepared, read_missing(spec, prepared), lambda line: None)
        found = {"encode_seconds": round(time.perf_counter() - began, 1)}
    else:
        found = train(spec, prepared.corpus, folder / "trial")
    return found | {f"{what}_peak_mib": _peak_mib("VmHWM")}


def train(spec: Any, corpus: Path, output: Path) -> dict[str, float]:
    """One epoch in this process."""
    import torch
    import torch.distributed as dist

    from trainables.features.encoded_corpus import EncodedCorpus
    from trainables.records.job import TrialJob
    from trainables.workers.worker import run_trial

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    began = time.perf_counter()
    result = run_trial(TrialJob(spec, corpus, output), lambda epoch, metrics: None)
    whole = time.perf_counter() - began
    assert result is not None
    examples = EncodedCorpus.open(corpus).size("train")
    seconds = result.metrics["seconds_per_epoch"]
    return {
        "train_utterances": examples,
        "epoch_seconds": round(seconds, 2),
        "utterances_a_second": round(examples / seconds, 1),
        "trial_seconds": round(whole, 1),
        "train_anonymous_mib": _peak_mib("RssAnon"),
    }


def _peak_mib(field: str) -> float:
    """Of this process' memory as Linux counts it: VmHWM, the peak of all; RssAnon, now, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024, 1)


if __name__ == "__main__":
    if sys.argv[1:2] in (["encode"], ["train"]):
        print(json.dumps(child(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main(sys.argv[1:])
