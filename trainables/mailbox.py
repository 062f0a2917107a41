"""How trials reach a worker group and its answers come back: one small actor between them.

A job is work for all workers of a group; rank 0 answers with its epochs and one end. A job that was handed out when
the group went down ends as failed, and the restarted group takes the next one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal

import ray

from trainables.epochs import Metrics
from trainables.worker import Stop, TrialJob

# So long rank 0 waits at an epoch's end to hear whether to stop: whoever sent the job may be gone.
_PATIENCE_S = 20.0

Kind = Literal["started", "epoch", "result", "failed"]
Message = tuple[Kind, Any]
"""("started", None), then ("epoch", (epochs done, metrics)), and one of ("result", TrialResult), ("failed", reason)."""


class _Mailbox:
    """See the module. All methods run on one event loop, one after the other."""

    def __init__(self) -> None:
        self._jobs: list[tuple[str, TrialJob]] = []
        self._ended = 0
        self._cursor: dict[int, int] = {}
        self._replies: dict[str, asyncio.Queue[Message]] = {}
        self._answered: dict[str, int] = {}
        self._stops: dict[str, Stop] = {}
        self._note = ""
        self._closed: str | None = None
        self._changed = asyncio.Condition()

    async def submit(self, job_id: str, job: TrialJob) -> None:
        """Puts a job at the end of the line."""
        self._replies[job_id] = asyncio.Queue()
        async with self._changed:
            self._jobs.append((job_id, job))
            if self._closed is not None:
                self._replies[job_id].put_nowait(("failed", self._closed))
            self._changed.notify_all()

    async def join(self, rank: int) -> None:
        """A worker has started. If it had been handed a job before that has not ended, the group died over it."""
        if self._cursor.get(rank, 0) > self._ended:
            self._end(("failed", self._note or "a worker died"))
            self._note = ""
        self._cursor[rank] = self._ended

    async def next_job(self, rank: int) -> tuple[str, TrialJob] | None:
        """The next job for `rank`, when there is one; None when the mailbox is closed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._cursor[rank] < len(self._jobs) or self._closed is not None)
            if self._cursor[rank] >= len(self._jobs):
                return None
            job_id, job = self._jobs[self._cursor[rank]]
            if rank == 0:
                self._replies[job_id].put_nowait(("started", None))
            self._cursor[rank] += 1
            return job_id, job

    async def post(self, job_id: str, message: Message) -> None:
        """Rank 0's last message about a job."""
        if self._ended < len(self._jobs) and self._jobs[self._ended][0] == job_id:
            self._end(message)

    async def epoch(self, job_id: str, epoch: int, metrics: Metrics) -> Stop | None:
        """Rank 0 has done an epoch. Answers whether to stop now, when whoever sent the job has seen the epoch."""
        self._replies[job_id].put_nowait(("epoch", (epoch, metrics)))
        async with self._changed:
            with suppress(TimeoutError):
                seen = self._changed.wait_for(lambda: job_id in self._stops or self._answered.get(job_id, 0) >= epoch)
                await asyncio.wait_for(seen, _PATIENCE_S)
        return self._stops.get(job_id)

    async def answer(self, job_id: str, epoch: int, stop: Stop | None) -> None:
        """Whoever sent the job has seen an epoch of it; with `stop`, the job ends at the next end of an epoch."""
        async with self._changed:
            self._answered[job_id] = epoch
            if stop is not None:
                self._stops[job_id] = stop
            self._changed.notify_all()

    async def note(self, reason: str) -> None:
        """Why a worker is about to take its group down; the first one counts, the others follow from it."""
        self._note = self._note or reason

    async def next_message(self, job_id: str) -> Message:
        """The next message about a job, when there is one."""
        return await self._replies[job_id].get()

    async def close(self, reason: str) -> None:
        """No more jobs: workers leave when the line is empty, and jobs that nobody will run any more fail."""
        async with self._changed:
            self._closed = reason
            self._changed.notify_all()

    async def abandon(self, reason: str) -> None:
        """The group is gone for good: every job that has not ended fails."""
        await self.close(reason)
        while self._ended < len(self._jobs):
            self._end(("failed", self._note or reason))

    def _end(self, message: Message) -> None:
        job_id, _ = self._jobs[self._ended]
        self._replies[job_id].put_nowait(message)
        self._ended += 1


Mailbox = ray.remote(num_cpus=0)(_Mailbox)
