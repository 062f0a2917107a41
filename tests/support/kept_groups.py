"""A worker group that serves the sweeps of a file one after the other: to start one takes nine processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from trainables.execution.client import GroupSpec
from trainables.execution.worker_group import WorkerGroup


@contextmanager
def kept_groups() -> Iterator[None]:
    """What sweeps of this process ask for is what the last one had, where it ended well and they ask for the same."""
    kept: dict[GroupSpec, WorkerGroup] = {}

    def close() -> None:
        while kept:
            kept.popitem()[1].close()

    @contextmanager
    def lent(group: GroupSpec, storage: Path, name: str) -> Iterator[WorkerGroup]:
        one = kept.pop(group, None)
        if one is None:
            close()  # or it might wait for their processors
            one = WorkerGroup(group, storage, name)
            one._thread.name = "kept"  # a command whose group still runs at its end ends this process
        with ExitStack() as stack:
            stack.push(one.__exit__)
            yield one
            stack.pop_all()
        kept[group] = one

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.execution.session.WorkerGroup", lent)
        try:
            yield
        finally:
            close()
