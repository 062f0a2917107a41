"""Where the seconds of a sweep go that are not training: from `edp-sweep run` to the first step, and a trial.

    python -m tests.benchmarks.startup [WORKERS] [TRIALS]

Runs a quickstart sweep as a person would, and watches from outside: the lines that it prints, and the files that its
trials leave, which hold their own seconds. Prints one JSON document; all figures are seconds of wall-clock time.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import about
from trainables.records.epochs import read_curve

_POLL_S = 0.02


@dataclass(frozen=True)
class Observed:
    """What a sweep printed on stderr, with seconds since its start, and its jobs by name, in the same seconds."""

    said: list[tuple[float, str]]
    jobs: dict[str, dict[str, float]]


def observed(settings: dict[str, Any], folder: Path, environment: Mapping[str, str] = os.environ) -> Observed:
    """Run a quickstart sweep in `folder`, and return what came when."""
    words = [f"{key}={value}" for key, value in settings.items()]
    call = [sys.executable, "-m", "sweeps.commands", "run", "quickstart_paper", "--name", "s", "--storage", str(folder)]
    call += ["--json", *(part for word in words for part in ("--set", word))]
    began = time.time()
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[tuple[float, str]] = []
    firsts: dict[str, tuple[float, float]] = {}
    errors, printed = process.stderr, process.stdout
    threads = [
        threading.Thread(target=lambda: said.extend((time.time() - began, line) for line in errors)),
        threading.Thread(target=_watch, args=(process, folder / "s", began, firsts)),
    ]
    for thread in threads:
        thread.start()
    answer = printed.read()
    for thread in threads:
        thread.join()
    assert process.wait() == 0, said
    document = json.loads(answer)
    took = {"baseline": document["baseline"]} | {str(t["number"]): t["metrics"] for t in document["trials"]}
    return Observed(said, {name: _job(folder / "s", name, firsts[name], took.get(name, {})) for name in firsts})


def measure(workers: int, trials: int, folder: Path) -> dict[str, Any]:
    """Run the sweep in `folder`, and return what came when."""
    seen = observed({"training.workers": workers, "search.trials": trials, "search.stop": "null"}, folder)
    first = min(seen.jobs.values(), key=lambda job: job["began"])
    ready = next(at for at, line in seen.said if line.startswith("sweep s:"))
    encoded = max([ready, *(at for at, line in seen.said if line.startswith(("encoding", "making")))])
    own = [seen.jobs[str(n)] for n in range(trials)]
    return {
        "workers": workers,
        "trials": trials,
        "run_to_first_step": {
            "imports, corpora, Ray, MLflow": round(ready, 1),
            "word features, encoding": round(encoded - ready, 1),
            "worker processes, their imports, their group": round(first["began"] - encoded, 1),
            "sum": round(first["began"], 1),
        },
        "next_trial_after": figures([b["began"] - a["ended"] for a, b in itertools.pairwise(own)]),
        "trial": {
            "whole": figures([job["ended"] - job["began"] for job in own]),
            "training loop": figures([job["training"] for job in own]),
            "set-up, and validation, attack, checkpoint of each epoch": figures(
                [job["around"] - job["training"] for job in own]
            ),
            "test split, attack, models kept": figures([job["ended"] - job["began"] - job["around"] for job in own]),
        },
    }


def _watch(process: subprocess.Popen[str], sweep: Path, began: float, firsts: dict[str, tuple[float, float]]) -> None:
    """Notes when each job's first epoch was written, and what the job had taken by then."""
    while process.poll() is None:
        for file in (*sweep.glob("*/curve.json"), *sweep.glob("trials/*/curve.json")):
            if file.parent.name not in firsts:
                written = file.stat().st_mtime - began
                firsts[file.parent.name] = (written, read_curve(file.parent)[0]["trial_seconds"])
        time.sleep(_POLL_S)


def _job(sweep: Path, name: str, first: tuple[float, float], metrics: dict[str, float]) -> dict[str, float]:
    """When a job began and ended, what its training loop took, and that with what is around each epoch."""
    curve = read_curve(sweep / "trials" / name) or read_curve(sweep / name)
    began = first[0] - first[1]
    around = curve[-1]["trial_seconds"]
    training = sum(epoch["epoch_seconds"] for epoch in curve)
    return {
        "began": began,
        "ended": began + metrics.get("trial_seconds", around),
        "around": around,
        "training": training,
    }


def figures(values: list[float]) -> dict[str, float]:
    """Return the median, the least and the most of some seconds."""
    return {
        "median": round(statistics.median(values), 2),
        "least": round(min(values), 2),
        "most": round(max(values), 2),
    }


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    workers = int(words[0]) if words else 8
    trials = int(words[1]) if len(words) > 1 else 6
    with tempfile.TemporaryDirectory() as folder:
        found = measure(workers, trials, Path(folder))
    print(json.dumps(about("startup", [f"{workers}", f"{trials}"], "ray") | found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
