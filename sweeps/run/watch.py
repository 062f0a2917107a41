"""Says what a trial is waiting for, and for whom, when it has waited for a minute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import ray

from sweeps.run.progress import Progress
from sweeps.run.watching import watched
from trainables.execution.client import GroupSpec
from trainables.execution.drivers import held_by_others, other_drivers

PATIENCE_S = 60.0
_EVERY_S = 5.0


@contextmanager
def stall_reporter(progress: Progress, group: GroupSpec, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Watches what waits while the block runs; what waits on is heard of again after twice the time, and so on.

    Args:
        progress: knows what waits, and is told.
        group: the processes that each of them needs.
        patience_s: seconds until the first word.
    """
    said: dict[tuple[str, float], float] = {}

    def look(done: threading.Event) -> None:
        while not done.wait(min(_EVERY_S, patience_s)):
            now = time.monotonic()
            for what, since in list(progress.waiting.items()):
                waited, key = now - since, (what, since)
                if waited >= said.get(key, patience_s):
                    said[key] = 2 * waited
                    progress.say(f"{what} has waited {waited:.0f} s for {wanted(group)}")

    with watched(look, "stall_reporter"):
        yield


def wanted(group: GroupSpec) -> str:
    """What a group of workers that has not started lacks, as Ray tells it now."""
    try:
        table = ray.util.placement_group_table()
        free, total = ray.available_resources(), ray.cluster_resources()
        held, names = held_by_others(), other_drivers()
    except Exception as error:  # Ray itself may be what is gone
        return f"Ray, which does not answer ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    pending = [one for one in table.values() if one["state"] in ("PENDING", "RESCHEDULING")]
    mine = [one for one in pending if _same(one["bundles"].values(), group)]
    if not mine:
        return "its workers to start and to load their libraries"

    def holders(name: str) -> str:
        """For whom it waits, apart from its own sweep's other trials."""
        amounts = [
            f"; {f'sweep {names[one]}' if one in names else 'another program'} holds {has[name]:g}"
            for one, has in sorted(held.items())
            if has[name]
        ]
        return "".join(amounts)

    need = " and ".join(
        f"{amount * group.workers:g} {name} (free: {free.get(name, 0):g} of {total.get(name, 0):g}{holders(name)})"
        for name, amount in group.bundle.items()
    )
    where = " on one node" if group.one_node else ""
    return f"{need}{where}"


def _same(bundles: Iterable[Mapping[str, float]], group: GroupSpec) -> bool:
    found = list(bundles)
    return len(found) == group.workers and all(_close(bundle, group.bundle) for bundle in found)


def _close(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(abs(one.get(name, 0.0) - amount) < 1e-3 for name, amount in other.items())
