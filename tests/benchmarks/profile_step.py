"""What is left of private training's price: self CPU time of a step by operator, beside plain SGD's. By hand:

    python -m tests.benchmarks.profile_step [MODEL …]

Steps of `sgd` and `dpsgd` alternate in one process, at batch 32, each under PyTorch's profiler. Prints one JSON
document:
per model the CPU milliseconds of a step of both, and of the operators that differ most.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

METHODS = ("sgd", "dpsgd")
_BATCH, _WARM_UP, _ROUNDS, _STEPS, _SHOWN = 32, 3, 5, 4, 12


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    import torch
    import torch.distributed as dist

    from tests.benchmarks.machine import machine, versions
    from tests.benchmarks.methods import bench_spec, encoded, stepper

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    models: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in words or ("clc", "bert"):
            corpus = {"name": "communication", "utterances": 2000}
            spec = bench_spec(model, corpus, batch_size=_BATCH, workers=1)
            data = encoded(spec, Path(folder) / model)
            steps = {method: stepper(method, spec, data, torch.device("cpu")) for method in METHODS}
            models[model] = _differences(steps)
    command = " ".join(["python -m tests.benchmarks.profile_step", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"batch_size": _BATCH, "models": models}, indent=1))


def _differences(steps: dict[str, Callable[[], None]]) -> dict[str, Any]:
    from torch.profiler import ProfilerActivity, profile

    spent: dict[str, Counter[str]] = {method: Counter() for method in steps}
    for step in steps.values():
        for _ in range(_WARM_UP):
            step()
    for _ in range(_ROUNDS):
        for method, step in steps.items():
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                for _ in range(_STEPS):
                    step()
            for row in seen.key_averages():
                spent[method][row.key] += row.self_cpu_time_total / 1000 / _ROUNDS / _STEPS
    plain, private = (spent[method] for method in METHODS)
    names = sorted({*plain, *private}, key=lambda name: -abs(private[name] - plain[name]))[:_SHOWN]
    return {
        "milliseconds": {method: round(sum(times.values()), 2) for method, times in spent.items()},
        "operators": {name: {method: round(spent[method][name], 3) for method in METHODS} for name in names},
    }


if __name__ == "__main__":
    main(sys.argv[1:])
