"""A pool of warm worker groups, as many as jobs wait for, and as its owner may have: a job goes to one that is free."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any

import ray

from trainables.workers.client import Demand, Leases
from trainables.workers.job_queue import colocated_actor
from trainables.workers.worker_group import WorkerGroup

_LOOK_S = 0.5
"""Seconds between two looks at the demand."""
_AGAIN_S = 60.0
"""Seconds after the end of a group that could not go on before another one is started beside those that run."""
_STARVED_S = 30.0
"""Seconds without workers after which a group that has a job gets the place of one that has none."""
_RENEW_AFTER = 500
"""Jobs after which a group is replaced, and with it whatever its processes have gathered."""

Start = Callable[[int], AbstractContextManager[WorkerGroup]]
"""Starts the group of a number, which counts the groups of a pool. The context ends it."""


class _Member:
    """A group of the pool."""

    def __init__(self, context: AbstractContextManager[WorkerGroup]) -> None:
        self._context = context
        self.group = context.__enter__()
        self.ready = False
        self._seen = time.monotonic()

    def look(self, served: bool) -> None:
        """Note whether the workers run."""
        self.ready = self.ready or served
        self._seen = time.monotonic() if served else self._seen

    @property
    def starved(self) -> bool:
        """True if the workers have died, and no others have started for long: their place may be gone."""
        return self.ready and time.monotonic() - self._seen > _STARVED_S

    def leave(self, kind: type[BaseException] | None = None, error: BaseException | None = None) -> None:
        self._context.__exit__(kind, error, error.__traceback__ if error is not None else None)


class WorkerPool:
    """A pool that starts its first group at once. It is a context manager, which ends its groups as `WorkerGroup` does.

    Args:
        start: starts a group.
        most: returns how many groups the pool may have now; it has at least one. If the number falls, a group that is
            free is ended; none is taken from its job.
        on_queue: called with the queue of each group that is started.
    """

    def __init__(self, start: Start, most: Callable[[], int], on_queue: Callable[[Any], None]) -> None:
        self.leases: Any = colocated_actor(Leases)
        self._start, self._most, self._on_queue = start, most, on_queue
        self._numbers = itertools.count()
        self._members: dict[int, _Member] = {}
        self._failed_at = float("-inf")
        self._ended = threading.Event()
        self._leavers = ThreadPoolExecutor(thread_name_prefix="leaving")
        self._add()
        self._thread = threading.Thread(target=self._tend, name="worker pool", daemon=True)
        self._thread.start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        patient = kind is None or issubclass(kind, Exception)
        self._thread.join(None if patient else _LOOK_S)
        leaving = [self._leavers.submit(member.leave, kind, error) for member in self._members.values()]
        self._leavers.shutdown(wait=patient)
        if patient:
            for one in leaving:
                one.result()
            ray.kill(self.leases)

    def _tend(self) -> None:
        """Fit the pool to its demand, until it ends; runs in a thread of its own."""
        while not self._ended.wait(_LOOK_S):
            if not ray.is_initialized():
                return
            with suppress(ray.exceptions.RayError):  # of a process that Ray starts again, or of Ray's own end
                self._look()

    def _look(self) -> None:
        served = ray.get([member.group.queue.is_served.remote() for member in self._members.values()])
        for member, runs in zip(self._members.values(), served, strict=True):
            member.look(runs)
        state = {number: (member.group.queue, member.ready) for number, member in self._members.items()}
        demand: Demand = ray.get(self.leases.sync.remote(state))
        most = max(1, self._most())
        for number in [number for number, member in self._members.items() if member.group.ended]:
            if len(self._members) > 1:  # the end of the last one is told to its jobs
                self._failed_at = time.monotonic()
                self._retire(number)
        free = [number for number in demand.free if number in self._members]
        worn = [number for number in free if demand.served[number] >= _RENEW_AFTER]
        starved = [member for number, member in self._members.items() if number not in free and member.starved]
        spare = sorted(demand.free, reverse=True) if starved or len(self._members) > most else []
        for number in [*worn[:1], *spare[:1]]:
            self._retire(number)
        if starved and spare:
            starved[0].look(served=True)  # its workers have as long to start in the place that has become free
        starting = sum(not member.ready for member in self._members.values())
        room = most - len(self._members) if time.monotonic() - self._failed_at > _AGAIN_S else 0
        for _ in range(min(room, max(demand.waiting - starting, not self._members))):
            self._add()

    def _add(self) -> None:
        number = next(self._numbers)
        self._members[number] = member = _Member(self._start(number))
        self._on_queue(member.group.queue)

    def _retire(self, number: int) -> None:
        """End a group in a thread of its own, unless it has got a job."""
        if number in self._members and ray.get(self.leases.retire.remote(number)):
            self._leavers.submit(self._members.pop(number).leave)
