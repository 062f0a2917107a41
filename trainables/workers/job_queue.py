"""The job queue: a small actor that hands jobs to a worker group, and keeps the reports of rank 0.

All workers of a group run the same job at once. Rank 0 reports each epoch, and one end. If the group dies, its job is
handed out again to the new group and goes on from its checkpoint. A job whose group dies several times without an epoch
in between ends as failed; the next job gets a new group.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.records.job import Stop, TrialJob
from trainables.records.pareto import Metrics

Kind = Literal["started", "restarted", "notice", "epoch", "result", "failed", "stopped"]
Message = tuple[Kind, Any]
"""("started", None) and ("restarted", reason) when a group takes the job up, ("notice", line) of a silent
worker, ("epoch", (epochs done, metrics)), and one of ("result", TrialResult), ("failed", reason), ("stopped", reason),
after which the job may be resumed from its checkpoint."""

# Limit of rank 0's wait at an epoch's end for an order to stop: the sender of the job may be gone.
_PATIENCE_S = 20.0

BEAT_S = 5.0
"""Seconds between two signs of life of a worker."""

PATIENCE_S = 60.0
"""Seconds of silence after which a worker is reported; again after twice the time, and so on."""

RETRIES = 3
"""Number of times that a job is handed out again without an epoch's progress, or that an idle group is restarted."""


class JobQueue:
    """The queue of a worker group. All methods run on one event loop, one after the other.

    Every incarnation of the group has a number, its generation: messages of an earlier one are ignored.

    Args:
        patience_s: silence of a worker before it is reported.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._beats: dict[int, tuple[float, str]] = {}
        self._reported: dict[int, float] = {}
        self._jobs: list[tuple[str, TrialJob]] = []
        self._ended = 0
        self._cursor: dict[int, int] = {}
        self._log: dict[str, list[Message]] = {}
        self._acknowledged: dict[str, int] = {}
        self._stops: dict[str, Stop] = {}
        self._generation = 0
        self._deaths = 0
        self._idle_deaths = 0
        self._note = ""
        self._closed: str | None = None
        self._stop: str | None = None
        self._changed = asyncio.Condition()

    async def submit(self, job_id: str, job: TrialJob) -> None:
        """Add a job at the end of the line; do nothing for one that is there already."""
        if job_id in self._log:
            return
        async with self._changed:
            self._log[job_id] = []
            self._jobs.append((job_id, job))
            if self._closed is not None or (self._stop is not None and not self._in_flight()):
                self._end_all(self._closed or "")
            self._changed.notify_all()

    async def next_job(self, rank: int, generation: int) -> tuple[str, TrialJob] | None:
        """Wait for the next job of `rank`; return None when there will be none for this generation."""

        def place() -> int:
            return self._cursor.get(rank, self._ended)

        async with self._changed:
            await self._changed.wait_for(
                lambda: place() < len(self._jobs) or self._closed is not None or generation != self._generation
            )
            if generation != self._generation or place() >= len(self._jobs):
                return None
            job_id, job = self._jobs[place()]
            self._cursor[rank] = place() + 1
            if rank == 0:
                self._log[job_id].append(("started", None))
                self._changed.notify_all()
            return job_id, job

    async def beat(self, rank: int, generation: int, place: str) -> bool:
        """Note a worker's sign of life; return True while its group is the current one."""
        if generation != self._generation or self._closed is not None:
            return False
        self._beats[rank] = time.monotonic(), place
        if self._reported.pop(rank, None) is not None:
            await self._notice(f"worker {rank} gives signs of life again")
        return True

    async def post(self, job_id: str, generation: int, message: Message) -> None:
        """Record rank 0's last message about a job."""
        async with self._changed:
            if self._is_current(job_id, generation):
                self._end(message)
                self._changed.notify_all()

    async def epoch(self, job_id: str, generation: int, epoch: int, metrics: Metrics) -> Stop | None:
        """Record an epoch of rank 0, wait until the job's sender has seen it, and return the order to stop, if any."""
        async with self._changed:
            if self._is_current(job_id, generation):
                self._deaths = 0
                self._log[job_id].append(("epoch", (epoch, metrics)))
                self._changed.notify_all()
            with suppress(TimeoutError):
                seen = self._changed.wait_for(
                    lambda: (
                        self._stop is not None or job_id in self._stops or self._acknowledged.get(job_id, 0) >= epoch
                    )
                )
                await asyncio.wait_for(seen, _PATIENCE_S)
        return Stop(self._stop, measure=False) if self._stop is not None else self._stops.get(job_id)

    async def acknowledge(self, job_id: str, epoch: int, stop: Stop | None) -> None:
        """Note that the job's sender has seen an epoch; with `stop`, the job ends at the end of an epoch, soon."""
        async with self._changed:
            self._acknowledged[job_id] = epoch
            if stop is not None:
                self._stops[job_id] = stop
            self._changed.notify_all()

    async def note(self, generation: int, reason: str) -> None:
        """Note the reason why a worker is about to take its group down; the first one counts, the others follow from
        it."""
        if generation == self._generation:
            self._note = self._note or reason

    async def died(self, reason: str, *, process: bool, again: bool) -> bool:
        """Note that the group has gone down.

        Args:
            process: True where a process has died; else the first note of a worker is the reason.
            again: whether its job is worth another try.

        Returns:
            Whether it is to be started again.
        """
        async with self._changed:
            reason, self._note = reason if process else self._note or reason, ""
            handed = self._in_flight()
            self._generation += 1
            self._cursor, self._beats, self._reported = {}, {}, {}
            self._idle_deaths = 0 if handed else self._idle_deaths + 1
            if self._stop is not None or self._idle_deaths > RETRIES:
                self._end_all(reason)
            elif handed:
                self._deaths += 1
                if not again:
                    self._end(("failed", reason))
                elif self._deaths > RETRIES:
                    self._end(
                        ("failed", f"its workers died {self._deaths} times without an epoch in between: {reason}")
                    )
                else:
                    self._log[self._jobs[self._ended][0]].append(("restarted", reason))
            self._changed.notify_all()
            return self._closed is None

    async def next_message(self, job_id: str, place: int) -> Message:
        """Wait for message number `place` about a job."""
        while True:
            async with self._changed:
                with suppress(TimeoutError):
                    there = self._changed.wait_for(lambda: len(self._log[job_id]) > place)
                    await asyncio.wait_for(there, min(BEAT_S, self._patience_s))
                    return self._log[job_id][place]
            await self._listen()

    async def stop(self, reason: str, *, at_once: bool = False) -> None:
        """Stop jobs at the end of their running epoch, or at once."""
        async with self._changed:
            self._stop = self._stop or reason
            if at_once or not self._in_flight():
                while self._ended < len(self._jobs):
                    self._end(("stopped", self._stop))
            self._changed.notify_all()

    async def close(self, reason: str) -> None:
        """Accept no more jobs: workers leave when the line is empty, and jobs without workers fail."""
        async with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    async def abandon(self, reason: str) -> None:
        """Fail every job that has not ended: the group is gone for good."""
        async with self._changed:
            self._end_all(self._note or reason)
            self._changed.notify_all()

    async def _listen(self) -> None:
        """Report workers that have been silent for long: a process that is stopped does not die."""
        now = time.monotonic()
        for rank, (heard, place) in sorted(self._beats.items()):
            silent = now - heard
            if silent >= self._reported.get(rank, self._patience_s):
                self._reported[rank] = 2 * silent
                await self._notice(
                    f"worker {rank} ({place}) has given no sign of life for {silent:.0f} s: it may be stopped "
                    "(kill -CONT wakes it), or its machine out of reach"
                )

    async def _notice(self, line: str) -> None:
        """Add a line about the first job that has not ended, where there is one."""
        async with self._changed:
            if self._ended < len(self._jobs):
                self._log[self._jobs[self._ended][0]].append(("notice", line))
                self._changed.notify_all()

    def _is_current(self, job_id: str, generation: int) -> bool:
        """Return True if a message is about the job in flight, and from the group that runs it."""
        return generation == self._generation and self._ended < len(self._jobs) and self._jobs[self._ended][0] == job_id

    def _in_flight(self) -> bool:
        return max(self._cursor.values(), default=0) > self._ended

    def _end_all(self, reason: str) -> None:
        self._closed = self._closed or reason
        while self._ended < len(self._jobs):
            self._end(("stopped", self._stop) if self._stop is not None else ("failed", reason))

    def _end(self, message: Message) -> None:
        job_id, _ = self._jobs[self._ended]
        self._log[job_id].append(message)
        self._ended += 1
        self._deaths = self._idle_deaths = 0


class StopSignal:
    """Stops the jobs of all queues that were added, or will be."""

    def __init__(self) -> None:
        self._queues: list[Any] = []
        self._reason: str | None = None

    async def add(self, queue: Any) -> None:
        """Add a queue; its jobs stop at once where the signal was sent before."""
        self._queues.append(queue)
        if self._reason is not None:
            queue.stop.remote(self._reason)

    async def send(self, reason: str) -> None:
        """Stop every job at the end of its running epoch."""
        self._reason = self._reason or reason
        for queue in self._queues:
            queue.stop.remote(self._reason)

    async def sent(self) -> str | None:
        """Return the reason; None: the signal was not sent."""
        return self._reason


def colocated_actor(kind: Callable[..., Any], *args: Any) -> Any:
    """Start an actor of the class `kind` on the caller's node.

    Ray puts an actor without CPUs on any node: if that node were removed, a healthy trial would lose its messages.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actors: Any = ray.remote(kind)
    return actors.options(num_cpus=0, scheduling_strategy=here).remote(*args)


@contextmanager
def ending(actor: Any | None) -> Iterator[None]:
    """End an actor's process with the block, or with this process where the block raised; None: there is none."""
    yield
    if actor is not None:
        ray.kill(actor)
