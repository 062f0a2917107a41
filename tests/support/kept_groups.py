"""A worker group that serves sweeps one after the other: to start one takes nine processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainables.workers.client import GroupSpec
from trainables.workers.worker_group import WorkerGroup


class KeptGroups:
    """The worker groups of this process' sweeps, kept for the next sweep that asks for an equal one."""

    def __init__(self) -> None:
        self._kept: dict[GroupSpec, WorkerGroup] = {}

    @contextmanager
    def lent(self, group: GroupSpec, storage: Path, name: str) -> Iterator[WorkerGroup]:
        """Yield a kept group in place of a new `WorkerGroup` of these arguments; keep it unless the block raises."""
        one = self._kept.pop(group, None)
        if one is None:
            self.close()  # or the new one might wait for their processors
            one = WorkerGroup(group, storage, name)
            one._thread.name = "kept"  # a command whose group still runs at its end ends this process
        with ExitStack() as stack:
            stack.push(one.__exit__)
            yield one
            stack.pop_all()
        if group in self._kept:  # a sweep with several groups at once
            one.close()
        self._kept.setdefault(group, one)

    def close(self) -> None:
        """End the kept groups."""
        while self._kept:
            self._kept.popitem()[1].close()
