"""Memory of a worker over many trials, which must not grow with them.

    python -m tests.benchmarks.growth [TRIALS]

Prints one JSON document: MiB of the process after every tenth trial, with its freed memory given back.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tests.benchmarks.machine import machine, versions
from tests.support.tiny import RANDOM_BERT, SPEC
from trainables.config import TrialSpec
from trainables.corpora import load_corpus
from trainables.features.encoding import encode
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.workers.worker import run_trial

MODELS = {"clc": SPEC["model"], "bert": RANDOM_BERT}


def main(words: Sequence[str]) -> None:
    """Print the memory of each kind of model's trials, one kind after the other in one process."""
    trials = int(words[0]) if words else 150
    grown = {}
    for model, its in MODELS.items():
        with tempfile.TemporaryDirectory() as folder, alone():
            grown[model] = _memory(its, trials, Path(folder))
    about = {"date": f"{date.today()}", "machine": machine(), "versions": versions()}
    print(json.dumps(about | {"trials": trials, "mib": grown}, indent=1))


def _memory(model: dict[str, object], trials: int, folder: Path) -> list[float]:
    found = []
    for number in range(trials):
        changes = {"training": {"method": ("edp", "dpsgd")[number % 2]}, "edp": {"z0": 0.1 + number / 100}}
        spec = TrialSpec.model_validate({k: v | changes.get(k, {}) for k, v in SPEC.items()} | {"model": model})
        if not number:
            encode(load_corpus(spec.corpus), spec.model, folder / "corpus")
        run_trial(TrialJob(spec, folder / "corpus", folder / str(number)), lambda epoch, metrics: None)
        if number % 10 == 9:
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            lines = Path("/proc/self/status").read_text().splitlines()
            found.append(round(int(next(one for one in lines if one.startswith("VmRSS")).split()[1]) / 1024, 1))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
