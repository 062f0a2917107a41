"""Whether `torch.compile` pays: seconds until it has compiled, and a step's time over the eager one's. By hand:

    python -m tests.benchmarks.compiled [MODEL …]

Plain SGD at the paper's sizes, one process, batch 32, utterances of all lengths (`dynamic=True`), in turns. Of BERT the
encoder is compiled, of CLC the whole model: its LSTM is many small products, which is where a compiler could help.
Prints one JSON document; a model that cannot be compiled has the error instead of figures.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from tests.benchmarks import methods
from tests.benchmarks.machine import machine, versions
from trainables.models import build_model
from trainables.training.process import keep_freed_memory

BATCH_SIZE, ROUNDS, SETTLED = 32, 25, 8
_LONGEST_S = 900


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    torch.set_num_threads(1)
    # Otherwise the graph is cut where DDP's buckets end, which does not go with lengths that vary.
    torch._dynamo.config.optimize_ddp = False
    keep_freed_memory()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rows = [measure(model) for model in words or methods.MODELS]
    dist.destroy_process_group()
    command = " ".join(["python -m tests.benchmarks.compiled", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"batch_size": BATCH_SIZE, "rounds": ROUNDS, "rows": rows}, indent=1))


def measure(model: str) -> dict[str, Any]:
    """A model's row."""
    about = {"name": "communication", "utterances": 5000}
    spec = methods.bench_spec(model, about, batch_size=BATCH_SIZE, workers=1)
    with tempfile.TemporaryDirectory() as folder:
        data = methods.encoded(spec, Path(folder) / model)
        eager = methods.stepper("sgd", spec, data, torch.device("cpu"))
        with patch.object(methods, "build_model", _compiled):
            compiled = methods.stepper("sgd", spec, data, torch.device("cpu"))
        try:
            first = _settle(compiled)
        except Exception as error:
            return {"model": model, "error": str(error).splitlines()[0]}
        for _ in range(3):
            eager()
        ratios = []
        for _ in range(ROUNDS):
            alone = _seconds(eager, time.process_time)
            ratios.append(_seconds(compiled, time.process_time) / alone)
    q1, median, q3 = (round(float(x), 3) for x in np.quantile(ratios, (0.25, 0.5, 0.75)))
    return {
        "model": model,
        "seconds_to_compile": round(sum(first), 1),
        "steps_to_compile": len(first),
        "ratio": median,
        "ratio_q1": q1,
        "ratio_q3": q3,
    }


def _settle(step: methods.Step) -> list[float]:
    """Seconds of the steps until `SETTLED` of them in a row compiled nothing, those left out."""
    seconds: list[float] = []
    while len(seconds) < SETTLED or max(seconds[-SETTLED:]) > 3 * min(seconds):
        seconds.append(_seconds(step, time.perf_counter))
        print(f"step {len(seconds)}: {seconds[-1]:.2f} s", file=sys.stderr, flush=True)
        if sum(seconds) > _LONGEST_S:
            raise TimeoutError(f"still compiling after {len(seconds)} steps and {sum(seconds):.0f} s")
    return seconds[:-SETTLED]


def _seconds(step: methods.Step, clock: Any) -> float:
    began: float = clock()
    step()
    return float(clock() - began)


def _compiled(*words: Any, **settings: Any) -> Any:
    model = build_model(*words, **settings)
    getattr(model, "encoder", model).compile(dynamic=True)
    return model


if __name__ == "__main__":
    main(sys.argv[1:])
