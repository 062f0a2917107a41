"""Peak memory of a worker by method, over plain SGD's at the same piece. Too long for CI; by hand:

    python -m tests.benchmarks.memory [MODEL …]

A few training steps of the paper's models, each method in a process of its own; what is reported is the peak of
resident memory above what the process held before its first step. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

METHODS = ("sgd", "edp", "dpsgd", "sgd:trainable=heads", "dpsgd:trainable=heads")
BATCHES = (64, 256)
_STEPS = 4


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    from tests.benchmarks.machine import machine, versions
    from tests.benchmarks.methods import compared_with

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in words or ("clc", "bert"):
            for batch_size in BATCHES:
                peaks: dict[str, float] = {}
                for method in METHODS:
                    call = [sys.executable, "-m", "tests.benchmarks.memory", "child"]
                    call += [model, str(batch_size), method, folder]
                    environment = os.environ | {"OMP_NUM_THREADS": "1"}
                    done = subprocess.run(call, check=True, stdout=subprocess.PIPE, env=environment)
                    peaks[method] = json.loads(done.stdout.splitlines()[-1])
                    ratio = round(peaks[method] / peaks[compared_with(method)], 3)
                    rows.append(
                        {
                            "model": model,
                            "batch_size": batch_size,
                            "method": method,
                            "mib": peaks[method],
                            "ratio": ratio,
                        }
                    )
                    print(rows[-1], file=sys.stderr, flush=True)
    command = " ".join(["python -m tests.benchmarks.memory", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"rows": rows}, indent=1))


def child(model: str, batch_size: int, method: str, folder: Path) -> float:
    """MiB that a few steps take at their peak."""
    import torch
    import torch.distributed as dist

    from tests.benchmarks.methods import bench_spec, encoded, stepper

    torch.set_num_threads(1)
    corpus = {"name": "communication", "utterances": 2000}
    spec = bench_spec(model, corpus, batch_size=batch_size, workers=1)
    one_piece = spec.training.model_copy(update={"memory_batch": batch_size})
    data = encoded(spec, folder / model)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    step = stepper(method, spec.model_copy(update={"training": one_piece}), data, torch.device("cpu"))
    before = _mib("VmRSS")
    for _ in range(_STEPS):
        step()
    return round(_mib("VmHWM") - before, 1)


def _mib(field: str) -> float:
    """Of this process' memory as Linux counts it: VmRSS, now; VmHWM, at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        print(child(sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5])))
    else:
        main(sys.argv[1:])
