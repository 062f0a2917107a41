"""Toward a hundred nodes: 64 groups of eight logical GPUs on 16 simulated nodes, one of which is lost in mid-wave.

    python -m tests.benchmarks.many_groups [NODES]

Plan, pool, leases, queues and a group's restarts are the real ones. In the place of a `TorchTrainer` a group has one
process that holds the placement group of eight workers. No node replaces the lost one: its trials get the places of
groups that have become idle. Prints one JSON document.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from edp.ledger import Ledger
from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.engine.resources import placement
from tests.benchmarks.machine import machine, versions
from tests.support.tiny import spec
from tests.support.waiting import wait_for
from trainables.records.job import News, TrialJob, TrialResult
from trainables.workers.client import GroupSpec
from trainables.workers.job_queue import colocated_actor
from trainables.workers.leases import run_in_pool
from trainables.workers.pool import WorkerPool
from trainables.workers.worker_group import WorkerGroup

GPUS, WORKERS = 32, 8
_WAIT_S = 400.0


class Gate:
    """Opened when all trials may end."""

    def __init__(self) -> None:
        self._open = False

    async def open(self) -> None:
        """Let them end."""
        self._open = True

    async def is_open(self) -> bool:
        """Return True if they may end."""
        return self._open


class Worker:
    """The process of a group, whose jobs end when the gate is open."""

    def serve(self, queue: Any, generation: int, gate: Any) -> None:
        """Serve until the queue is closed."""
        ray.get(queue.beat.remote(0, generation, "here"))
        while (item := ray.get(queue.next_job.remote(0, generation))) is not None:
            while not ray.get(gate.is_open.remote()):
                ray.get(queue.beat.remote(0, generation, "here"))
                time.sleep(2)
            ray.get(queue.post.remote(item[0], generation, ("result", TrialResult({}, Ledger(), {}))))


class _Trainer:
    """What `WorkerGroup` needs of a `TorchTrainer`."""

    def __init__(self, group: GroupSpec, queue: Any, generation: int, gate: Any) -> None:
        self._group, self._call = group, (queue, generation, gate)

    def fit(self) -> None:
        """Run the group to its end."""
        places = placement_group([self._group.bundle] * self._group.workers, strategy="STRICT_PACK")
        try:
            ray.get(places.ready())
            first = PlacementGroupSchedulingStrategy(places, placement_group_bundle_index=0)
            worker: Any = ray.remote(Worker).options(num_cpus=0, num_gpus=1, scheduling_strategy=first).remote()
            ray.get(worker.serve.remote(*self._call))
            ray.kill(worker)
        finally:
            remove_placement_group(places)


class Group(WorkerGroup):
    """A worker group of one process."""

    gate: Any = None

    def _trainer(self, generation: int) -> Any:
        return _Trainer(self._group, self.queue, generation, self.gate)


def measure(nodes: int, folder: Path) -> dict[str, Any]:
    """Run one wave of trials, and lose a node in it."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 0, "include_dashboard": False})
    added = [cluster.add_node(num_cpus=8, num_gpus=GPUS) for _ in range(nodes)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    cluster.wait_for_nodes()
    one = spec(training={"workers": WORKERS, "device": "auto"})
    resources = ResourcesSpec(gpus_per_worker=1.0, cpus_per_worker=0.2)
    placed = placement(one.training, resources, SearchSpec(trials=1000))
    Group.gate = colocated_actor(Gate)
    heard: list[list[str]] = [[] for _ in range(placed.concurrency)]
    results: dict[int, TrialResult] = {}

    def trial(number: int, pool: WorkerPool) -> None:
        def on_news(news: News) -> None:
            heard[number].append("lost" if news.waits else news.line or "started")

        job = TrialJob(one, folder / "corpus", folder / str(number))
        results[number] = run_in_pool(pool.leases, job, lambda epoch, metrics: None, on_news=on_news)

    def all_in(where: Callable[[], bool]) -> float:
        began = time.monotonic()
        print(f"{len(results)} of {placed.concurrency} trials have ended", file=sys.stderr, flush=True)
        wait_for(where, _WAIT_S)
        return round(time.monotonic() - began, 1)

    def begin(number: int) -> Group:
        return Group(placed.group, folder / "ray", f"group-{number}")

    found: dict[str, Any] = {"plan": placed.line, "groups": placed.concurrency, "nodes": nodes}
    with WorkerPool(begin, lambda: placed.concurrency, lambda queue: None) as pool:
        threads = [threading.Thread(target=trial, args=(n, pool)) for n in range(placed.concurrency)]
        for thread in threads:
            thread.start()
        found["seconds_to_start_all"] = all_in(lambda: all("started" in lines for lines in heard))
        cluster.remove_node(added[0])
        lost = GPUS // WORKERS
        found["seconds_to_notice_a_lost_node"] = all_in(lambda: sum("lost" in lines for lines in heard) == lost)
        ray.get(Group.gate.open.remote())
        found["seconds_to_end_the_others"] = all_in(lambda: len(results) >= placed.concurrency - lost)
        found["seconds_to_end_the_lost_ones"] = all_in(lambda: len(results) == placed.concurrency)
        for thread in threads:
            thread.join()
    ray.shutdown()
    cluster.shutdown()
    return found


def main(words: Sequence[str]) -> None:
    """Prints one JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(int(words[0]) if words else 16, Path(folder))
    command = " ".join(["python -m tests.benchmarks.many_groups", *words])
    about = {"date": f"{date.today()}", "command": command, "machine": machine()}
    print(json.dumps(about | {"versions": versions() | {"ray": ray.__version__}} | found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
