"""Three trials at once on a simulated cluster of three nodes with eight logical GPUs each; one node goes in mid-trial.

    python -m tests.support.many_nodes FOLDER WORKERS

Prints what happened as one JSON document. A process of its own: a simulated cluster takes this process' Ray for itself.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from sweeps.config.parts import ResourcesSpec, SearchSpec
from sweeps.engine.placement import placement
from sweeps.engine.watch import wanted
from tests.support.tiny import spec
from tests.support.waiting import wait_for
from trainables.corpora import load_corpus
from trainables.features.encoded_corpus import encode
from trainables.records.job import TrialJob
from trainables.workers.worker_group import run_fresh

NODES, GPUS, EPOCHS = 3, 8, 12


def groups_by_node() -> dict[str, list[str]]:
    """The nodes that each worker group's placement group lies on, by its id."""
    table = ray.util.placement_group_table()
    return {
        one["placement_group_id"]: sorted(set(one["bundles_to_node_id"].values()))
        for one in table.values()
        if one["state"] == "CREATED"
    }


def story(folder: Path, workers: int) -> dict[str, Any]:
    one = spec(training={"workers": workers, "epochs": EPOCHS, "device": "cpu"})
    corpus = folder / "corpus"
    encode(load_corpus(one.corpus), one.model, corpus)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=8, num_gpus=GPUS) for _ in range(NODES)]
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    cluster.wait_for_nodes()
    on_gpus = one.training.model_copy(update={"device": "auto"})
    resources = ResourcesSpec(gpus_per_worker=GPUS / workers, cpus_per_worker=0.5, group="fresh")
    placed = placement(on_gpus, resources, SearchSpec(trials=10))
    found: dict[str, Any] = {"plan": placed.line, "concurrency": placed.concurrency}
    epochs: list[list[int]] = [[] for _ in range(NODES)]
    news: list[list[str]] = [[] for _ in range(NODES)]
    results: dict[int, Any] = {}

    def trial(number: int) -> None:
        job = TrialJob(one, corpus, folder / "trials" / str(number))
        results[number] = run_fresh(
            job,
            placed.group,
            folder / "ray",
            f"trial-{number}",
            lambda epoch, metrics: heard(number, epoch),
            on_news=lambda one: news[number].append(one.line or "started"),
        )

    # Trials wait at an epoch's end for what their driver answers: the hurt one until its node has gone, the sound ones
    # until that was noticed, lest they end before and free the node that is then to be waited for. The hurt one's
    # driver is not held any longer: it is the one that notices.
    hurt = 0
    gone, noticed = threading.Event(), threading.Event()

    def heard(number: int, epoch: int) -> None:
        epochs[number].append(epoch)
        if epoch > 1:
            (gone if number == hurt else noticed).wait()

    threads = [threading.Thread(target=trial, args=(number,), daemon=True) for number in range(NODES)]
    began = time.monotonic()
    threads[hurt].start()
    (held, where), *_ = wait_for(groups_by_node).items()
    for thread in threads[hurt + 1 :]:
        thread.start()
    wait_for(lambda: all(epochs))
    found["seconds_until_all_train"] = time.monotonic() - began
    found["groups"] = list(groups_by_node().values())

    cluster.remove_node(next(node for node in nodes if where == [node.node_id]), allow_graceful=False)
    gone.set()
    began = time.monotonic()
    wait_for(lambda: any("its workers died" in line for line in news[hurt]))
    found["seconds_until_noticed"] = time.monotonic() - began
    assert held not in groups_by_node()
    left = f"of {(NODES - 1) * GPUS}"  # the node is counted until Ray's head misses it
    found["waits_for"] = wait_for(lambda: line if left in (line := wanted(placed.group)) else None)
    noticed.set()
    done = len(epochs[hurt])
    cluster.add_node(num_cpus=8, num_gpus=GPUS)
    began = time.monotonic()
    wait_for(lambda: len(epochs[hurt]) > done)
    found["seconds_to_go_on"] = time.monotonic() - began
    for thread in threads:
        thread.join()
    found["epochs"] = epochs
    found["steps"] = [results[number].ledger.steps for number in range(NODES)]
    found["news"] = news[hurt]
    ray.shutdown()
    cluster.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(story(Path(sys.argv[1]), int(sys.argv[2]))))
