"""Sweeps that are on one cluster at the same time share it: each runs so many trials at once as are its part."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sweeps.recipes.parts import ResourcesSpec
from sweeps.run.resources import Placement
from trainables.execution.drivers import other_drivers, this_driver

_LOOK_S = 2.0


def part(whole: int, me: str, others: Iterable[str]) -> int:
    """How many of `whole` trials one of several sweeps may run at once: equal parts, the rest to whoever came earlier.

    Args:
        me, others: ids of their connections, which grow. Of the others there may be none.
    """
    ids = sorted([me, *others])
    return max(1, len(range(ids.index(me), whole, len(ids))))


def at_once(placed: Placement, resources: ResourcesSpec, say: Callable[[str], None]) -> Callable[[], int]:
    """Tells how many trials a sweep may run at once now. A trial that runs is not stopped when that becomes fewer.

    Args:
        say: told when it changes, and for whom.
    """
    found, looked = placed.concurrency, float("-inf")

    def now() -> int:
        nonlocal found, looked
        if placed.concurrency == 1 or resources.share != "auto":
            return placed.concurrency
        if time.monotonic() - looked >= _LOOK_S:
            others = other_drivers()
            before, looked = found, time.monotonic()
            found = min(placed.concurrency, part(placed.fits, this_driver(), others))
            if found != before:
                who = ", ".join(sorted(others.values()))
                shared = f"the cluster is shared with sweep(s) {who}" if who else "no other sweep is on the cluster"
                say(f"{found} trial(s) at once from now on: {shared}")
        return found

    return now
