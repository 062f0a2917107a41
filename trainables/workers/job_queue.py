"""The job queue: a small actor that hands jobs to a worker group, and keeps the messages of rank 0.

All workers of a group run the same job at once. Rank 0 reports each epoch, and then one end. If the group dies, its job
is handed to the new group and resumes from its checkpoint. A job whose group dies several times without an epoch in
between ends as failed, and the next job gets a new group. A job that is not to blame is stopped instead, and may be
resumed: Ray killed the workers for want of memory, or no group could be started.

If the queue itself dies, Ray starts it again, with nothing in it. It then refuses the group of its former life, and the
sender of a job submits it again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.records.job import Stop, TrialJob
from trainables.records.pareto import Metrics

Kind = Literal["started", "restarted", "lost", "notice", "epoch", "result", "failed", "stopped"]
Message = tuple[Kind, Any]
"""A message about a job: its kind, and what belongs to it.

- ("started", None): a group has begun to run the job.
- ("restarted", reason): the group has died, and the job waits for the next one.
- ("lost", None): the queue died, and does not know the job any more.
- ("notice", line): a worker is silent, or gives signs of life again.
- ("epoch", (epochs done, metrics)): an epoch has ended.
- ("result", TrialResult), ("failed", reason) or ("stopped", reason): the last message. A stopped job may be resumed
  from its checkpoint.
"""

# The job's sender may have died, so rank 0 waits only this long at an epoch's end for an order to stop.
_PATIENCE_S = 20.0

BEAT_S = 5.0
"""Seconds between two signs of life of a worker."""

PATIENCE_S = 60.0
"""Seconds of silence after which a worker is reported; the next report follows after twice the time, and so on."""

RETRIES = 3
"""Number of times that a job is handed out again without an epoch's progress, or that an idle group is restarted."""


@dataclass(frozen=True)
class Death:
    """The cause of a group's end."""

    reason: str
    process: bool
    """True: a process has died. False: a worker has raised an error, and its note, if any, is the reason."""
    again: bool = True
    """True: the job is worth another try."""
    memory: bool = False
    """True: Ray killed a process because its machine was short of memory, for which the job may not be to blame."""


class JobQueue:
    """The queue of a worker group. All methods run on one event loop, so they need no locks between two awaits.

    Each start of the group has a number, its generation. Messages of an earlier generation are ignored: workers of a
    group that died may still run for a while.

    Args:
        patience_s: seconds of a worker's silence before it is reported.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._beats: dict[int, tuple[float, str]] = {}  # time and place of each rank's last sign of life
        self._reported: dict[int, float] = {}  # seconds of silence at which a reported rank is reported again
        self._jobs: list[tuple[str, TrialJob]] = []
        self._ended = 0  # jobs end in their order, so this is also the index of the first job that has not ended
        self._cursor: dict[int, int] = {}  # index of the job that each rank takes next
        self._log: dict[str, list[Message]] = {}
        self._acknowledged: dict[str, int] = {}
        self._stops: dict[str, Stop] = {}
        self._generation = 0
        self._deaths = 0  # since the last epoch of the job in flight
        self._idle_deaths = 0  # of groups that had taken no job
        self._note = ""
        self._closed: str | None = None
        self._stop: str | None = None
        self._changed = asyncio.Condition()

    async def submit(self, job_id: str, job: TrialJob) -> None:
        """Add a job at the end of the queue; do nothing if its id is there already."""
        if job_id in self._log:
            return
        async with self._changed:
            self._log[job_id] = []
            self._jobs.append((job_id, job))
            if self._closed is not None or (self._stop is not None and not self._in_flight()):
                self._end_all(self._closed or "")
            self._changed.notify_all()

    async def begin(self, generation: int) -> bool:
        """Serve the group of this generation, from 1 on, and no other; return False if no group is needed any more."""
        async with self._changed:
            self._generation = generation
            self._changed.notify_all()
            return self._closed is None

    async def next_job(self, rank: int, generation: int) -> tuple[str, TrialJob] | None:
        """Wait for the next job of `rank`; return None if this generation gets no more jobs."""

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
        """Record a worker's sign of life; return True while its group is the current one."""
        if generation != self._generation or self._closed is not None:
            return False
        self._beats[rank] = time.monotonic(), place
        if self._reported.pop(rank, None) is not None:
            await self._notice(f"worker {rank} gives signs of life again")
        return True

    async def is_served(self) -> bool:
        """Return True if workers of the current group have given a sign of life."""
        return bool(self._beats)

    async def post(self, job_id: str, generation: int, message: Message) -> None:
        """Record rank 0's last message about a job, which ends it."""
        async with self._changed:
            if self._is_current(job_id, generation):
                self._end(message)
                self._changed.notify_all()

    async def epoch(self, job_id: str, generation: int, epoch: int, metrics: Metrics) -> Stop | None:
        """Record an epoch of rank 0; wait until the job's sender has acknowledged it; return the order to stop, if any.

        Rank 0 waits so that early stopping takes effect at the epoch that it was decided on.
        """
        if generation != self._generation:
            return Stop("another group runs the job", measure=False)
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
        """Record that the job's sender, or its driver, has seen an epoch; with `stop`, the job stops at its end."""
        async with self._changed:
            self._acknowledged[job_id] = epoch
            if stop is not None:
                self._stops[job_id] = stop
            self._changed.notify_all()

    async def note(self, generation: int, reason: str) -> None:
        """Record why a worker is about to end its group. Only the first reason counts: the others follow from it."""
        if generation == self._generation:
            self._note = self._note or reason

    async def died(self, death: Death) -> None:
        """Record the end of the group, and end its job or hand it out again."""
        async with self._changed:
            reason, self._note = death.reason if death.process else self._note or death.reason, ""
            handed = self._in_flight()
            self._generation += 1
            self._cursor, self._beats, self._reported = {}, {}, {}
            self._idle_deaths = 0 if handed else self._idle_deaths + 1
            if self._stop is not None or self._idle_deaths > RETRIES:
                self._end_all(reason)
            elif handed:
                self._deaths += 1
                often = f"its workers died {self._deaths} times without an epoch in between: {reason}"
                if not death.again:
                    self._end(("failed", reason))
                elif self._deaths <= RETRIES:
                    self._add(("restarted", reason))
                elif death.memory:
                    self._end(("stopped", reason))
                else:
                    self._end(("failed", often))
            self._changed.notify_all()

    async def next_message(self, job_id: str, place: int) -> Message:
        """Wait for message number `place` about a job, counted from 0."""
        if job_id not in self._log:
            return "lost", None
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
        """Accept no more jobs. Workers leave when the queue is empty; later jobs are stopped."""
        async with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    async def abandon(self, reason: str) -> None:
        """Stop every job that has not ended, because the group will not be started again."""
        async with self._changed:
            self._end_all(self._note or reason)
            self._changed.notify_all()

    async def _listen(self) -> None:
        """Report workers that have been silent for long. A stopped process does not die, so Ray does not notice it."""
        now = time.monotonic()
        for rank, (heard, place) in sorted(self._beats.items()):
            silent = now - heard
            if silent >= self._reported.get(rank, self._patience_s):
                self._reported[rank] = 2 * silent
                await self._notice(
                    f"worker {rank} ({place}) has given no sign of life for {silent:.0f} s: it may be stopped "
                    "(kill -CONT wakes it), or its machine may be out of reach"
                )

    async def _notice(self, line: str) -> None:
        """Add a line to the messages of the first job that has not ended, if there is one."""
        async with self._changed:
            if self._ended < len(self._jobs):
                self._add(("notice", line))
                self._changed.notify_all()

    def _is_current(self, job_id: str, generation: int) -> bool:
        """Return True if a message is about the job in flight, and comes from the group that runs it."""
        return generation == self._generation and self._ended < len(self._jobs) and self._jobs[self._ended][0] == job_id

    def _in_flight(self) -> bool:
        """Return True if a worker has taken the first job that has not ended."""
        return max(self._cursor.values(), default=0) > self._ended

    def _end_all(self, reason: str) -> None:
        """End all jobs that have not ended, and accept no more."""
        self._closed = self._closed or reason
        while self._ended < len(self._jobs):
            self._end(("stopped", self._stop or reason))

    def _end(self, message: Message) -> None:
        """Add the last message about the first job that has not ended."""
        self._add(message)
        self._ended += 1
        self._deaths = self._idle_deaths = 0

    def _add(self, message: Message) -> None:
        """Add a message about the first job that has not ended."""
        self._log[self._jobs[self._ended][0]].append(message)


class StopSignal:
    """The order to stop the jobs of all queues that are added, before or after it is given. Threads may share it."""

    def __init__(self) -> None:
        self.reason: str | None = None
        """The reason of the order; None if it was not given."""
        self._queues = set[Any]()
        self._lock = threading.Lock()

    def add(self, queue: Any) -> None:
        """Add a queue. If the order was given before, its jobs stop too."""
        with self._lock:
            self._queues.add(queue)
        if self.reason is not None:
            queue.stop.remote(self.reason)

    def send(self, reason: str) -> None:
        """Stop every job at the end of its running epoch."""
        with self._lock:
            self.reason = self.reason or reason
            queues = list(self._queues)
        for queue in queues:
            queue.stop.remote(self.reason)


RESTARTS = 20
"""Number of times that Ray starts an actor of `colocated_actor` again whose process has died."""


def colocated_actor(kind: Callable[..., Any], *args: Any) -> Any:
    """Start an actor of the class `kind` on the caller's node. If its process dies, Ray starts it and its calls again.

    Ray places an actor that asks for no CPUs on any node. If that node went away, a healthy trial would lose its
    messages.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actors: Any = ray.remote(kind)
    again = {"max_restarts": RESTARTS, "max_task_retries": -1}
    return actors.options(num_cpus=0, scheduling_strategy=here, **again).remote(*args)
