"""What the engine costs a trial: 200 short trials on a simulated cluster of five nodes, whose workers only sleep.

    python -m tests.benchmarks.many_trials [TRIALS] [SECONDS]

Searcher, study, Ray Tune with a process a trial, MLflow store and front are the real ones; only what a worker group
would do is slept through. Prints one JSON document.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import optuna
import ray
from ray.cluster_utils import Cluster
from rich.console import Console

from edp.ledger import Ledger
from sweeps.bench.machine import machine, versions
from sweeps.commands.finish import finish
from sweeps.config.loading import load_recipe
from sweeps.run.prepare import encode_missing, locate, read_missing
from sweeps.run.progress import Progress
from sweeps.run.resources import placement
from sweeps.run.session import Workers
from sweeps.run.study import open_study
from sweeps.run.trials import run_trials
from sweeps.store.records import SweepRecord
from sweeps.store.storage import default_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from tests.conftest import TINY_RECIPE
from trainables.records.job import EpochResult, TrialJob, TrialResult
from trainables.workers.job_queue import Message, StopSignal, colocated_actor

NODES, GPUS = 5, 8


class Asleep:
    """A queue whose jobs are slept through, any number of them at once, and come to made-up figures."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._messages = seconds, dict[str, list[Message]]()

    async def submit(self, job_id: str, job: TrialJob) -> None:
        """A job begins."""
        edp, epochs = job.spec.edp, job.spec.training.epochs
        epsilon = 8.0 / edp.z0 if edp.z0 else 1e6
        metrics = {"ser": min(1.0, edp.z0 + 0.05), "mia_auc": 0.5 + 0.1 / (1 + edp.z0), "epsilon": epsilon}
        metrics |= {"epsilon_paper": epsilon, "delta": edp.delta, "intent_accuracy": 0.5, "slot_f1": 0.5}
        metrics |= {"trial_seconds": self._seconds, "gpu_seconds": 0.0, "worker_seconds": 0.0, "seconds_per_epoch": 0.0}
        curve = {f"valid_{name}": metrics[name] for name in ("ser", "mia_auc")} | {"epsilon": epsilon}
        ends: list[Message] = [("epoch", (n, curve | {"epoch_seconds": 0.0})) for n in range(1, epochs + 1)]
        result = TrialResult(metrics, Ledger(), {}, (EpochResult(epochs, metrics),))
        self._messages[job_id] = [("started", None), *ends, ("result", result)]

    async def next_message(self, job_id: str, place: int) -> Message:
        """The job's message at `place`; its end comes after its sleep."""
        message = self._messages[job_id][place]
        if message[0] == "result":
            await asyncio.sleep(self._seconds)
        return message

    async def answer(self, job_id: str, epoch: int, stop: object) -> None:
        """Nobody is stopped."""


def measure(trials: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Runs the sweep; wall-clock seconds and what of them a trial cost beside its sleep."""
    recipe_file = folder / "many.yaml"
    recipe_file.write_text(TINY_RECIPE)
    settings = [f"search.trials={trials}", "search.stop=null", "resources.cpus_per_worker=0.5"]
    _, recipe = load_recipe(str(recipe_file), settings)
    sweep = Sweep.new(folder, "many")
    base = recipe.baseline()
    prepared = locate(base, sweep.cache)
    console = Console(stderr=True)
    progress = Progress(console)
    encode_missing(base, prepared, read_missing(base, prepared), progress.say)
    placed = placement(recipe.training, recipe.resources, recipe.search)
    tracker = Tracker(default_tracking_uri(folder), "many", folder / "mlflow-artifacts", progress.say)
    run_id = tracker.start("many", params={}, tags={"role": "sweep", "sweep": "many"})
    assert run_id is not None
    sweep.save_recipe(recipe)
    uri = default_tracking_uri(folder)
    sweep.save(
        SweepRecord(
            name="many",
            recipe="many",
            state="running",
            tracking_uri=uri,
            run_id=run_id,
            wanted=trials,
            pid=os.getpid(),
        )
    )
    queue = colocated_actor(Asleep, seconds)
    workers = Workers(_nothing, colocated_actor(StopSignal), queue)
    began = time.monotonic()
    with contextlib.redirect_stdout(sys.stderr):  # Tune prints tables
        run_trials(sweep, recipe, prepared, placed, workers, tracker, progress)
    trained = time.monotonic() - began
    finish(sweep, recipe, tracker, "finished", progress)
    states = [trial.state for trial in open_study(sweep, recipe).get_trials(deepcopy=False)]
    assert states == [optuna.trial.TrialState.COMPLETE] * trials, "every trial once, and none left over"
    return {
        "plan": placed.line,
        "trials": trials,
        "concurrency": placed.concurrency,
        "seconds_asleep": seconds,
        "seconds_of_trials": round(trained, 1),
        "seconds_to_finish": round(time.monotonic() - began - trained, 1),
        # Trials run side by side: what a place was taken for, less the sleep.
        "overhead_seconds_a_trial": round(trained * placed.concurrency / trials - seconds, 3),
        "engine_seconds_a_trial": round(trained / trials, 3),
    }


def _nothing(*_: object) -> TrialResult:
    raise AssertionError("no job is run beside the trials")


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    trials = int(words[0]) if words else 200
    seconds = float(words[1]) if len(words) > 1 else 10.0
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    for _ in range(NODES):
        cluster.add_node(num_cpus=8, num_gpus=GPUS)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    cluster.wait_for_nodes()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(trials, seconds, Path(folder))
    ray.shutdown()
    cluster.shutdown()
    print(
        json.dumps(
            {
                "date": f"{date.today()}",
                "command": f"python -m tests.benchmarks.many_trials {trials} {seconds:g}",
                "machine": machine(),
                "versions": versions() | {"ray": ray.__version__, "optuna": optuna.__version__},
                **found,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
