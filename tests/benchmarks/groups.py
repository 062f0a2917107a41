"""A small sweep in one worker group, in several at once, and with a `TorchTrainer` of its own for each trial.

    python -m tests.benchmarks.groups [KEY=VALUE …] [--trials 8] [--workers 1] [--at-once 1,2,4] [--gpus]

Runs `quickstart_paper` on a cluster of logical CPUs, or of logical GPUs too, as a person who sets `RAY_ADDRESS` does.
All processes share the cores of this machine: groups at once show what the engine costs, not what more cores give.
Prints one JSON document. A trial's next start is the seconds after the end of the trial that was there before.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from tests.benchmarks.machine import about
from tests.benchmarks.startup import figures, observed


def measure(asked: argparse.Namespace, kind: str, at_once: int, address: str, folder: Path) -> dict[str, Any]:
    """Run one sweep, and return its figures.

    Args:
        kind: `resources.group`: warm or fresh.
        at_once: trials at once.
    """
    settings = {
        "training.workers": asked.workers,
        "resources.cpus_per_worker": 1,
        "resources.group": kind,
        "search.trials": asked.trials,
        "search.concurrency": at_once,
        "search.stop": "null",
        **dict(word.split("=", 1) for word in asked.settings),
    }
    seen = observed(settings, folder, os.environ | {"RAY_ADDRESS": address})
    own = sorted((seen.jobs[str(n)] for n in range(asked.trials)), key=lambda job: job["began"])
    # The n-th trial after the first ones begins where the n-th end has left a place.
    ends = sorted(job["ended"] for job in own)
    gaps = [job["began"] - end for job, end in zip(own[at_once:], ends, strict=False)]
    seconds = ends[-1] - own[0]["began"]
    return {
        "group": kind,
        "at_once": at_once,
        "trials_a_minute": round(60 * asked.trials / seconds, 1),
        "next_trial_after": figures(gaps),
        "seconds_a_trial": figures([job["ended"] - job["began"] for job in own]),
        "seconds_of_the_sweep": round(ends[-1], 1),
    }


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--at-once", default="1,2,4")
    parser.add_argument("--gpus", action="store_true", help="a logical GPU a worker")
    asked = parser.parse_args(words)
    widths = [int(word) for word in asked.at_once.split(",")]
    most = max(widths) * asked.workers
    head = {"num_cpus": 2 * most + 2, "num_gpus": most if asked.gpus else 0, "include_dashboard": False}
    rows = []
    for kind, at_once in [("fresh", widths[0]), *(("warm", width) for width in widths)]:
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(asked, kind, at_once, cluster.address, Path(folder)))
        finally:
            cluster.shutdown()
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(json.dumps(about("groups", words, "ray") | {"logical_gpus": asked.gpus, "rows": rows}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
