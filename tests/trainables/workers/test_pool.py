"""A pool starts groups as jobs wait for them, ends those that it may no longer have, and replaces those that died."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.support.tiny import corpus, spec
from tests.support.waiting import wait_for
from trainables.records.job import TrialJob
from trainables.workers.client import GroupSpec, run_in_pool
from trainables.workers.worker_group import WorkerGroup, WorkerPool

__all__ = ["corpus"]

ONE = GroupSpec(workers=1, cpus_per_worker=0.2)


class _Queue:
    """The queue of a group whose jobs end at once."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self._runs = True

    async def is_served(self) -> bool:
        return self._runs

    async def lose(self) -> None:
        self._runs = False

    async def submit(self, job_id: str, job: Any) -> None:
        self.served.append(job_id)

    async def next_message(self, job_id: str, place: int) -> Any:
        return "result", (job_id, id(self))


class _Group:
    """A group of no processes but its queue's."""

    def __init__(self) -> None:
        queues: Any = ray.remote(_Queue)
        self.queue = queues.options(num_cpus=0).remote()
        self.ended = False


class _Groups:
    def __init__(self) -> None:
        self.started: list[_Group] = []
        self.left: list[_Group] = []

    @contextmanager
    def start(self, number: int) -> Iterator[Any]:
        one = _Group()
        self.started.append(one)
        try:
            yield one
        finally:
            self.left.append(one)
            ray.kill(one.queue)


def job(output: Path) -> TrialJob:
    return TrialJob(spec(), Path("corpus"), output)


def test_a_pool_follows_its_demand_and_its_limit(long_story: None, ray_cluster: str, tmp_path: Path) -> None:
    groups, most, queues = _Groups(), 3, []
    with WorkerPool(groups.start, lambda: most, queues.append) as pool:
        taken = [pool.leases.lease.remote(name) for name in "abcd"]
        wait_for(lambda: len(groups.started) == 3)
        ready, _ = ray.wait(taken, num_returns=3, timeout=60)
        assert len(ready) == 3, "the fourth waits"
        assert len({ray.get(one)._actor_id for one in ready}) == 3
        for name in "abcd":
            pool.leases.release.remote(name)
        ray.get(taken)
        for name in "abcd":
            pool.leases.release.remote(name)
        most = 1
        wait_for(lambda: len(groups.left) == 2)
        assert groups.started[0] not in groups.left, "the oldest stays"
        run_in_pool(pool.leases, job(tmp_path), lambda epoch, metrics: None)
    assert len(groups.left) == len(groups.started) == len(queues) == 3


@pytest.mark.stress
def test_a_worn_group_is_replaced(ray_cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.workers.worker_group._RENEW_AFTER", 2)
    groups = _Groups()
    with WorkerPool(groups.start, lambda: 2, lambda queue: None) as pool:
        for _ in range(2):
            run_in_pool(pool.leases, job(tmp_path), lambda epoch, metrics: None)
        wait_for(lambda: groups.left, 60)
        run_in_pool(pool.leases, job(tmp_path), lambda epoch, metrics: None)
        assert len(groups.started) == 2


def test_a_group_that_has_ended_is_replaced(
    long_story: None, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.workers.worker_group._AGAIN_S", 0.0)
    groups = _Groups()
    with WorkerPool(groups.start, lambda: 2, lambda queue: None) as pool:
        taken = [pool.leases.lease.remote(name) for name in "ab"]
        ray.get(taken, timeout=60)
        groups.started[1].ended = True
        pool.leases.release.remote("a")
        pool.leases.release.remote("b")
        wait_for(lambda: groups.started[1] in groups.left, 60)
        taken = [pool.leases.lease.remote(name) for name in "cd"]
        ray.get(taken, timeout=60)
        assert len(groups.started) == 3


def test_a_group_that_finds_no_place_again_gets_that_of_an_idle_one(
    long_story: None, ray_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainables.workers.worker_group._STARVED_S", 1.0)
    groups = _Groups()
    with WorkerPool(groups.start, lambda: 3, lambda queue: None) as pool:
        busy, idle, _ = ray.get([pool.leases.lease.remote(name) for name in "abc"], timeout=60)
        pool.leases.release.remote("b")
        ray.get(idle.lose.remote())
        time.sleep(3)  # no event says that nothing happens: an idle group that is lost takes no place
        assert not groups.left
        ray.get(busy.lose.remote())
        wait_for(lambda: groups.left, 60)
        assert [one.queue for one in groups.left] == [idle], "c has its workers, and a waits for some"


def test_jobs_run_at_once_on_groups_of_real_processes(
    long_story: None, ray_cluster: str, corpus: Path, tmp_path: Path
) -> None:
    def start(number: int) -> WorkerGroup:
        return WorkerGroup(ONE, tmp_path / "train", f"group-{number}")

    def run(pool: WorkerPool, name: str) -> float:
        seen: list[float] = []
        run_in_pool(
            pool.leases,
            TrialJob(spec(training={"workers": 1, "epochs": 300}), corpus, tmp_path / name),
            lambda epoch, metrics: seen.append(time.monotonic()),
        )
        return seen[0]

    with WorkerPool(start, lambda: 2, lambda queue: None) as pool, ThreadPoolExecutor(2) as threads:
        began = [one.result() for one in [threads.submit(run, pool, name) for name in ("one", "two")]]
        assert len(pool._members) == 2
    assert len(began) == 2
