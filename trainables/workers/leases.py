"""The leases of a pool of worker groups (`trainables.workers.pool`): which group serves which job.

The senders of jobs are processes of their own. They ask a small actor for a group that is free.

This file does not import PyTorch, so that processes that only pass on messages start faster.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray

from trainables.records.job import TrialJob, TrialResult
from trainables.workers.client import OnEpoch, run_job

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
