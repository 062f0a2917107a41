"""The sender's side of a job: run it on a worker group, or on the first free one of a pool (`Leases`).

This file does not import PyTorch, so that processes that only pass on messages start faster.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import ray

from edp.spec import Frozen
from trainables.records.job import News, Stop, TrialError, TrialJob, TrialResult, TrialStopped
from trainables.records.pareto import Metrics

OnEpoch = Callable[[int, Metrics], Stop | None]
"""Called with the number of epochs done and their metrics; returns an order to stop, or None."""

OnNews = Callable[[News], None]


class GroupSpec(Frozen):
    """The processes that one trial needs."""

    workers: int
    cpus_per_worker: float
    gpus_per_worker: float = 0.0
    backend: Literal["gloo", "nccl"] = "gloo"
    one_node: bool = False
    """True: all workers run on one node, so that a trial that fits there sends no gradients over the network."""

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that Ray reserves for each worker."""
        gpus = {"GPU": self.gpus_per_worker} if self.gpus_per_worker > 0 else {}
        return {"CPU": self.cpus_per_worker, **gpus}


def run_job(
    queue: Any,
    job: TrialJob,
    on_epoch: OnEpoch,
    *,
    job_id: str | None = None,
    on_news: OnNews = lambda news: None,
    answered: bool = False,
) -> TrialResult:
    """Run `job` on the worker group behind `queue`, and wait for its end.

    Args:
        job_id: identifies the job. A second call with the same id starts nothing: it reports all epochs again.
        on_news: called with events of the job other than its epochs.
        answered: True if another process acknowledges the epochs that `on_epoch` reports to it.

    Raises:
        TrialStopped: if the job was stopped before its end.
        TrialError: if the job failed, with the reason.
    """
    job_id = job_id or uuid.uuid4().hex
    ray.get(queue.submit.remote(job_id, job))
    place = 0
    while True:
        kind, payload = ray.get(queue.next_message.remote(job_id, place))
        place += 1
        match kind:
            case "lost":
                on_news(News("the process with its messages died; it will resume from its last epoch", waits=True))
                ray.get(queue.submit.remote(job_id, job))
                place = 0
            case "started":
                on_news(News())
            case "restarted":
                on_news(News(f"its workers died ({payload}); it will resume from its last epoch", waits=True))
            case "notice":
                on_news(News(payload))
            case "epoch":
                stop = on_epoch(*payload)
                if not answered:
                    ray.get(queue.acknowledge.remote(job_id, payload[0], stop))
            case "result":
                return payload
            case "failed":
                raise TrialError(payload)
            case "stopped":
                raise TrialStopped(payload)


SHORT_OF_MEMORY = (
    "a machine is short of memory, so Ray ended processes on it; close other programs there, or ask for less in "
    "recipe.yaml: training.workers, training.memory_batch, resources.share"
)

_DEATHS = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.RaySystemError,
    ray.exceptions.RpcError,
    ray.exceptions.ActorUnschedulableError,
    ray.exceptions.TaskUnschedulableError,
)


def death_in(error: BaseException | None) -> str | None:
    """Return in words that a process of Ray died, or was killed for want of memory; None for any other error."""
    died = None
    while error is not None:
        if isinstance(error, ray.exceptions.OutOfMemoryError) or "low on memory" in str(error):
            return SHORT_OF_MEMORY
        if isinstance(error, _DEATHS):
            died = f"a process that it needs died ({type(error).__name__.partition('(')[0]})"
        error = error.__cause__ or error.__context__
    return died


_RELEASE_S = 5.0
"""Seconds to wait for an answer that a group is free again."""


@dataclass
class _Lent:
    """A group as `Leases` knows it."""

    queue: Any
    ready: bool = False
    """True once its workers run. Until then a job goes to it only if no other group runs."""
    job: str | None = None
    """The job that it serves."""
    served: int = 0


@dataclass(frozen=True)
class Demand:
    """The jobs of a pool at one moment."""

    waiting: int = 0
    """Jobs that wait for a group."""
    free: tuple[int, ...] = ()
    """Groups without a job."""
    served: dict[int, int] = field(default_factory=dict)
    """The number of jobs that each group has begun."""


class Leases:
    """Which group serves which job. All methods run on one event loop.

    If its process dies, Ray starts it again with nothing in it, and repeats the calls that wait. The next `sync` tells
    it the groups; a group that serves a job then counts as free, and a second job waits in the group's own queue.
    """

    def __init__(self) -> None:
        self._groups: dict[int, _Lent] = {}
        self._waiting = 0
        self._changed = asyncio.Condition()

    async def sync(self, groups: dict[int, tuple[Any, bool]]) -> Demand:
        """Replace the groups: by number, the queue of each, and whether its workers run. Return the demand for them."""
        async with self._changed:
            for number in self._groups.keys() - groups.keys():
                del self._groups[number]
            for number, (queue, ready) in groups.items():
                self._groups.setdefault(number, _Lent(queue)).ready = ready
            self._changed.notify_all()
            free = tuple(number for number, one in self._groups.items() if one.job is None)
            return Demand(self._waiting, free, {number: one.served for number, one in self._groups.items()})

    async def lease(self, job_id: str) -> Any:
        """Wait for a group that is free, and return its queue; the same one for a job that has one."""
        self._waiting += 1
        try:
            async with self._changed:
                while (found := self._find(job_id)) is None:
                    await self._changed.wait()
                if found.job is None:
                    found.job, found.served = job_id, found.served + 1
                return found.queue
        finally:
            self._waiting -= 1

    def _find(self, job_id: str) -> _Lent | None:
        own = next((one for one in self._groups.values() if one.job == job_id), None)
        if own is not None:
            return own
        running = any(one.ready for one in self._groups.values())
        free = (one for one in self._groups.values() if one.job is None and (one.ready or not running))
        return next(free, None)

    async def release(self, job_id: str) -> None:
        """Free the group of a job that has ended."""
        async with self._changed:
            for one in self._groups.values():
                if one.job == job_id:
                    one.job = None
            self._changed.notify_all()

    async def retire(self, number: int) -> bool:
        """Forget a group, unless it serves a job; return True if it is forgotten."""
        async with self._changed:
            one = self._groups.get(number)
            if one is not None and one.job is not None:
                return False
            self._groups.pop(number, None)
            return True


def run_in_pool(
    leases: Any,
    job: TrialJob,
    on_epoch: OnEpoch,
    *,
    job_id: str | None = None,
    on_queue: Callable[[Any], None] = lambda queue: None,
    **options: Any,
) -> TrialResult:
    """Run `job` on the first free group of a pool, as `run_job` does, which gets `options`.

    Args:
        leases: the actor of the pool's `Leases`.
        on_queue: called with the group's queue before the job is submitted.
    """
    job_id = job_id or uuid.uuid4().hex
    queue = ray.get(leases.lease.remote(job_id))
    try:
        on_queue(queue)
        return run_job(queue, job, on_epoch, job_id=job_id, **options)
    finally:
        with suppress(Exception):  # Ray may be gone, which has its own words
            ray.get(leases.release.remote(job_id), timeout=_RELEASE_S)
