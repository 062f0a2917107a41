"""A warm worker group outlives what goes wrong in a trial, and serves the next one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from tests.support.kept_groups import KeptGroups
from tests.support.tiny import corpus, run, spec
from tests.support.waiting import wait_for
from trainables.records.job import News, Stop, TrialError, TrialJob
from trainables.records.pareto import Metrics
from trainables.workers.client import GroupSpec, run_job
from trainables.workers.ray_internals import remove_orphans
from trainables.workers.worker_group import WorkerGroup, run_fresh

__all__ = ["corpus"]

TWO = GroupSpec(workers=2, cpus_per_worker=1.0)
"""The processes that a sweep of the tiny recipe asks for, whose group is lent here."""
BESIDE = GroupSpec(workers=1, cpus_per_worker=0.2)
"""A process for which that group leaves room."""
TWO_BESIDE = GroupSpec(workers=2, cpus_per_worker=0.2)


def job(corpus: Path, output: Path, **changes: dict) -> TrialJob:
    return TrialJob(spec(training={"workers": 2} | changes.get("training", {})), corpus, output)


@pytest.fixture(scope="module")
def group(kept_worker_groups: KeptGroups, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    with kept_worker_groups.lent(TWO, tmp_path_factory.mktemp("train"), "test") as workers:
        yield workers


def epochs_of(group: WorkerGroup, one: TrialJob) -> tuple[list[int], Metrics]:
    seen: list[int] = []
    result = run_job(group.queue, one, lambda epoch, metrics: seen.append(epoch))
    return seen, result.metrics


def test_trials_run_one_after_the_other_and_a_failed_one_leaves_the_next_alone(
    long_story: None, group: WorkerGroup, corpus: Path, tmp_path: Path
) -> None:
    seen, first = epochs_of(group, job(corpus, tmp_path / "first"))
    assert seen == [1, 2]
    with pytest.raises(TrialError, match="the learning rate may be too high"):
        epochs_of(group, job(corpus, tmp_path / "bad", training={"learning_rate": 1e30}))
    # Reproducible noise and the same processes: nothing of the trial before may show.
    _, again = epochs_of(group, job(corpus, tmp_path / "again"))
    for name in ("ser", "intent_accuracy", "slot_f1", "epsilon"):
        assert again[name] == first[name]


def test_a_trials_model_does_not_stay_beside_the_next_ones(
    long_story: None, group: WorkerGroup, corpus: Path, tmp_path: Path
) -> None:
    large = {"hidden_size": 512, "layers": 2}
    used: list[float] = []
    for number in range(10):
        one = replace(job(corpus, tmp_path / str(number)), spec=spec(model=large, training={"workers": 2, "epochs": 1}))
        run_job(group.queue, one, lambda epoch, metrics: used.append(metrics["system/worker_memory_mib"]))
    # A trial's own are 130 MiB, which glibc keeps for the next one, in at most five pieces.
    assert used[-1] < used[5] + 20, used


def test_ray_changes_no_result_in_a_warm_group_and_in_a_fresh_one(
    long_story: None, group: WorkerGroup, corpus: Path, tmp_path: Path
) -> None:
    one = TrialJob(spec(), corpus, tmp_path / "fresh")
    fresh = run_fresh(one, BESIDE, tmp_path / "train", "fresh", lambda epoch, metrics: None).metrics
    _, warm = epochs_of(group, job(corpus, tmp_path / "warm"))
    for workers, found in ((1, fresh), (2, warm)):
        alone = run(corpus, tmp_path / f"without Ray {workers}", workers, training={"workers": workers})[0].metrics
        for name in ("ser", "intent_accuracy", "slot_f1", "epsilon"):
            assert found[name] == alone[name], (workers, name)


@pytest.mark.stress
def test_who_sent_a_job_may_end_it_at_an_epochs_end(group: WorkerGroup, corpus: Path, tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_at_2(epoch: int, metrics: Metrics) -> Stop | None:
        seen.append(epoch)
        return Stop("hopeless") if epoch == 2 else None

    result = run_job(group.queue, job(corpus, tmp_path / "stopped", training={"epochs": 500}), stop_at_2)
    assert seen == [1, 2]
    assert result.stopped == "hopeless"
    assert result.ledger.steps == 8


@pytest.mark.stress
def test_a_worker_that_raises_ends_its_trial_with_the_reason_and_no_other(
    group: WorkerGroup, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(TrialError, match=r"encoded corpus = .* is missing"):
        epochs_of(group, replace(job(corpus, tmp_path / "lost"), corpus=tmp_path / "nowhere"))
    seen, _ = epochs_of(group, job(corpus, tmp_path / "next"))
    assert seen == [1, 2]


def test_a_trial_whose_worker_is_killed_goes_on_from_its_last_epoch_to_the_same_end(
    ray_cluster: str, corpus: Path, tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    six, others = {"epochs": 6}, _train_workers()
    seen, news = list[int](), list[News]()

    def kill_a_worker(epoch: int, metrics: Metrics) -> None:
        seen.append(epoch)
        if epoch == 2:
            kill((_train_workers() - others).pop(), signal.SIGKILL)

    with WorkerGroup(TWO_BESIDE, tmp_path / "train", "killed") as group:
        _, whole = epochs_of(group, job(corpus, tmp_path / "whole", training=six))
        result = run_job(group.queue, job(corpus, tmp_path / "cut", training=six), kill_a_worker, on_news=news.append)
    assert seen == [1, 2, 3, 4, 5, 6], "no epoch is run twice"
    assert [one.line.partition(" (")[0] for one in news] == ["", "its workers died", ""]
    assert result.ledger.steps == 24
    for name in ("ser", "intent_accuracy", "slot_f1", "epsilon"):
        assert result.metrics[name] == whole[name]


def test_a_worker_that_is_stopped_for_long_is_named_by_its_process_and_goes_on_when_woken(
    ray_cluster: str, corpus: Path, tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    news, stopped, others = list[str](), list[int](), _train_workers()

    def stop_a_worker(epoch: int, metrics: Metrics) -> None:
        if not stopped:
            stopped.append((_train_workers() - others).pop())
            kill(stopped[0], signal.SIGSTOP)

    def wake_it(one: News) -> None:
        news.append(one.line)
        if "no sign of life" in one.line:
            kill(stopped[0], signal.SIGCONT)

    with WorkerGroup(TWO_BESIDE, tmp_path / "train", "stopped", patience_s=15.0) as group:
        result = run_job(group.queue, job(corpus, tmp_path / "one"), stop_a_worker, on_news=wake_it)
    assert result.ledger.steps == 8
    said = [line for line in news if line]
    assert f"(process {stopped[0]} on " in said[0]
    assert said[1].endswith("gives signs of life again")


def _train_workers() -> set[int]:
    """Process ids of the living workers of this test's own cluster."""
    from ray.util.state import list_actors

    address = ray.get_runtime_context().gcs_address
    actors = list_actors(address=address, filters=[("class_name", "=", "RayTrainWorker"), ("state", "=", "ALIVE")])
    return {int(actor["pid"]) for actor in actors}


def test_placement_groups_of_dead_actors_are_removed_and_the_drivers_own_stay(ray_cluster: str) -> None:
    """Tune's trials each have a group of the driver's: one death of a worker group must not end them all."""

    class Controller:
        def reserve(self) -> str:
            group = placement_group([{"CPU": 0.01}])
            ray.get(group.ready())
            return str(group.id.hex())

    def state(group: str) -> str:
        return str(placement_group_table()[group]["state"])

    own = placement_group([{"CPU": 0.01}])
    try:
        ray.get(own.ready())
        controllers: Any = ray.remote(Controller)
        dead, alive = (controllers.options(num_cpus=0).remote() for _ in range(2))
        orphan, kept = ray.get([dead.reserve.remote(), alive.reserve.remote()])
        ray.kill(dead)

        def is_removed() -> bool:
            remove_orphans()
            return state(orphan) == "REMOVED"

        wait_for(is_removed, 60)
        assert state(own.id.hex()) == state(kept) == "CREATED"
    finally:
        remove_placement_group(own)
