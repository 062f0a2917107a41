"""What the engine costs a trial: many trials of trivial work in a pool of groups on logical CPUs.

    python -m tests.benchmarks.many_trials [TRIALS] [GROUPS] [KEY=VALUE …] [--seconds 0.5] [--postgres]

Searcher, study, Ray Tune, the pool, its queues, the MLflow store and the front are the real ones. Only a group is not:
one process in the place of a `TorchTrainer`, which answers each job with made-up figures. Prints one JSON document,
whose `parts` have the costs of ten equal parts of the trials.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import optuna
import psycopg
import ray
from rich.console import Console

from edp.ledger import Ledger
from sweeps.config.loading import load_recipe
from sweeps.engine.finish import finish
from sweeps.engine.opening import Opening
from sweeps.engine.placement import TUNE_CPUS, placement
from sweeps.engine.progress import Progress
from sweeps.engine.session import Workers
from sweeps.engine.study import open_study
from sweeps.engine.trials import run_trials
from sweeps.store.records import SweepRecord
from sweeps.store.storage import default_tracking_uri
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import digests_of
from sweeps.tracking.tracker import Tracker
from tests.benchmarks.machine import about
from tests.conftest import TINY_RECIPE
from tests.support.postgres import postgres
from trainables.records.epochs import write_ledger
from trainables.records.job import EpochResult, TrialJob, TrialResult
from trainables.records.pareto import Metrics
from trainables.training.process import own_memory
from trainables.workers.job_queue import JobQueue, StopSignal, colocated_actor
from trainables.workers.worker_group import WorkerPool

_START_S = 20.0
"""Seconds that a group takes to start, about as many as one of eight workers takes on a core."""


class Worker:
    """A process that answers the jobs of a queue with made-up figures, after some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def serve(self, queue: Any) -> int:
        """Serve until the queue is closed; return the bytes by which the process has grown since its first job."""
        time.sleep(_START_S)
        served, began = 0, own_memory()
        ray.get(queue.beat.remote(0, 1, "here"))
        while (item := ray.get(queue.next_job.remote(0, 1))) is not None:
            job_id, job = item
            metrics = _figures(job)
            for epoch in range(1, job.spec.training.epochs + 1):
                time.sleep(self._seconds / job.spec.training.epochs)
                of_valid = {f"valid_{name}": metrics[name] for name in ("ser", "mia_auc")}
                ray.get(queue.epoch.remote(job_id, 1, epoch, metrics | of_valid))
            write_ledger(Ledger(), job.output)
            result = TrialResult(metrics, Ledger(), {}, (EpochResult(job.spec.training.epochs, metrics),))
            ray.get(queue.post.remote(job_id, 1, ("result", result)))
            served += 1
            began = own_memory() if served == 1 else began
        return own_memory() - began


def _figures(job: TrialJob) -> Metrics:
    edp = job.spec.edp
    epsilon = 8.0 / edp.z0 if edp.z0 else 1e6
    return {
        "ser": min(1.0, edp.z0 + 0.05),
        "mia_auc": 0.5 + 0.1 / (1 + edp.z0),
        "epsilon": epsilon,
        "epsilon_paper": epsilon,
        "delta": edp.delta,
        "intent_accuracy": 0.5,
        "slot_f1": 0.5,
        **dict.fromkeys(("trial_seconds", "gpu_seconds", "worker_seconds", "seconds_per_epoch", "epoch_seconds"), 0.0),
    }


class Group:
    """What `WorkerPool` needs of a worker group."""

    ended = False
    grown: ClassVar[list[int]] = []
    """By how many bytes the worker of each group has grown that has ended."""

    def __init__(self, seconds: float) -> None:
        self.queue: Any = colocated_actor(JobQueue)
        ray.get(self.queue.begin.remote(1))
        self._worker: Any = ray.remote(Worker).options(num_cpus=1).remote(seconds)
        self._served = self._worker.serve.remote(self.queue)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        ray.get(self.queue.close.remote("the end"))
        self.grown.append(ray.get(self._served))
        ray.kill(self._worker)
        ray.kill(self.queue)


class Counted(Progress):
    """A progress that notes time and memory of this process at each tenth of the trials."""

    def __init__(self, console: Console, trials: int) -> None:
        super().__init__(console)
        self._part, self._ended = trials / 10, 0
        self.marks = [_now()]

    def trial(self, number: int, state: str, *args: Any, **kwargs: Any) -> None:
        """Count the trial if it has ended."""
        super().trial(number, state, *args, **kwargs)
        self._ended += state == "complete"
        if state == "complete" and self._ended >= self._part * len(self.marks):
            self.marks.append(_now())


def _now() -> tuple[float, float, float]:
    """Return the time, the CPU seconds of this process, and its memory in MiB."""
    return time.monotonic(), time.process_time(), own_memory() / 2**20


def measure(asked: argparse.Namespace, uri: str | None, folder: Path) -> dict[str, Any]:
    """Run the sweep.

    Args:
        uri: of a database for study and runs; None: SQLite in `folder`.
    """
    trials, groups = asked.trials, asked.groups
    recipe_file = folder / "many.yaml"
    recipe_file.write_text(TINY_RECIPE)
    own = ["search.stop=null", "training.workers=1", "resources.cpus_per_worker=1", f"search.trials={trials}"]
    own += [f"search.study={uri}"] if uri else []
    _, recipe = load_recipe(str(recipe_file), [*own, *asked.settings])
    sweep = Sweep.new(folder, "many")
    base = recipe.baseline()
    progress = Counted(Console(stderr=True, quiet=True), trials)
    opened = Opening(sweep, base, progress)
    opened.encode()
    placed = placement(recipe.training, recipe.resources, recipe.search)
    runs = f"{uri.removesuffix('/postgres')}/runs" if uri else default_tracking_uri(folder)
    tracker = Tracker(runs, "many", folder / "mlflow-artifacts", progress.say)
    run_id = tracker.start("many", params={}, tags={"role": "sweep", "sweep": "many"})
    assert run_id is not None
    sweep.save_recipe(recipe)
    sweep.save(
        SweepRecord(
            name="many",
            recipe="many",
            state="running",
            tracking_uri=runs,
            run_id=run_id,
            wanted=trials,
            pid=os.getpid(),
            settings=digests_of(recipe),
        )
    )
    stop_signal = StopSignal()

    def most() -> int:
        return groups

    with (
        contextlib.redirect_stdout(sys.stderr),  # Tune prints tables
        WorkerPool(lambda number: Group(asked.seconds), most, lambda queue: None) as pool,
    ):
        run_trials(sweep, opened, placed, Workers(_nothing, most, stop_signal, pool.leases), tracker)
        trained = _now()
    finish(sweep, recipe, tracker, "finished", progress)
    ended = _now()
    states = [trial.state for trial in open_study(sweep, recipe).get_trials(deepcopy=False)]
    assert states.count(optuna.trial.TrialState.COMPLETE) == trials, "every trial once, and none left over"
    assert not tracker.failures, "MLflow has taken everything"
    first = progress.marks[0]
    return {
        "plan": placed.line,
        "trials": trials,
        "trials_a_second": round(trials / (trained[0] - first[0]), 2),
        "driver_cpu_seconds_a_trial": round((trained[1] - first[1]) / trials, 4),
        "seconds_to_finish": round(ended[0] - trained[0], 1),
        "driver_peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "worker_grown_mib": round(max(Group.grown) / 2**20, 1),
        "parts": [
            {
                "trials_a_second": round(trials / 10 / (after[0] - before[0]), 2),
                "driver_cpu_seconds_a_trial": round((after[1] - before[1]) / trials * 10, 4),
                "driver_mib": round(after[2], 1),
            }
            for before, after in zip(progress.marks, progress.marks[1:], strict=False)
        ],
    }


def _nothing(*_: object) -> TrialResult:
    raise AssertionError("no job is run beside the trials")


@contextlib.contextmanager
def _database(wanted: bool) -> Iterator[str | None]:
    if not wanted:
        yield None
        return
    with postgres() as uri, psycopg.connect(uri, autocommit=True) as server:
        server.execute(
            "CREATE DATABASE runs"
        )  # MLflow and Optuna would number the versions of their tables in one place
        yield uri


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trials", nargs="?", type=int, default=2000)
    parser.add_argument("groups", nargs="?", type=int, default=16)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seconds", type=float, default=0.5, help="of the work of a trial")
    parser.add_argument("--postgres", action="store_true")
    asked = parser.parse_args(words)
    cpus = asked.groups * (1 + TUNE_CPUS) + 1
    ray.init("local", num_cpus=int(cpus + 1), include_dashboard=False, log_to_driver=False, configure_logging=False)
    with tempfile.TemporaryDirectory() as folder, _database(asked.postgres) as uri:
        found = measure(asked, uri, Path(folder))
    ray.shutdown()
    print(json.dumps(about("many_trials", words, "ray", "optuna") | found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
