"""Threads that watch while a block runs: long work, and trials that wait for their workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import ray

from sweeps.engine.progress import Progress
from trainables.workers.client import GroupSpec
from trainables.workers.ray_internals import held_by_others, other_drivers

_PATIENCE_S = 10.0
"""Seconds until the first line about long work. The next line comes after twice the time, and so on."""
STALL_PATIENCE_S = 60.0
"""Seconds that a trial waits for workers before it is reported."""
_STALL_EVERY_S = 5.0

_LAST_LINE_S = 1.0
"""Seconds that a thread has to end after its block: one that hangs in a call to Ray must not delay the rest."""


@contextmanager
def watched(look: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `look` in a thread while the block runs, with an event that is set when the block ends."""
    done = threading.Event()
    thread = threading.Thread(target=look, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_LAST_LINE_S)


@contextmanager
def notice(what: str, say: Callable[[str], None], patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Say from time to time that `what` still runs, for a block whose progress cannot be measured."""
    began = time.monotonic()

    def speak(done: threading.Event) -> None:
        wait = patience_s
        while not done.wait(wait):
            passed = time.monotonic() - began
            say(f"{what}: for {passed:.0f} s so far")
            wait = passed

    with watched(speak, "notice"):
        yield


@contextmanager
def stall_reporter(progress: Progress, group: GroupSpec, patience_s: float = STALL_PATIENCE_S) -> Iterator[None]:
    """Report trials that wait for their workers while the block runs, each again after twice the time, and so on.

    Args:
        progress: holds the waiting trials, and shows the reports.
        group: the processes that each trial needs.
        patience_s: seconds until the first report.
    """
    next_report: dict[tuple[str, float], float] = {}

    def look(done: threading.Event) -> None:
        while not done.wait(min(_STALL_EVERY_S, patience_s)):
            now = time.monotonic()
            for what, since in list(progress.waiting.items()):
                waited, key = now - since, (what, since)
                if waited >= next_report.get(key, patience_s):
                    next_report[key] = 2 * waited
                    progress.say(f"{what} has waited {waited:.0f} s for {wanted(group)}")

    with watched(look, "stall_reporter"):
        yield


def wanted(group: GroupSpec) -> str:
    """Return the resources that a group of workers waits for, in words, from Ray's tables."""

    def is_worker(bundle: Mapping[str, float]) -> bool:
        return all(abs(bundle.get(name, 0.0) - amount) < 1e-3 for name, amount in group.bundle.items())

    try:
        table = ray.util.placement_group_table()
        free, total = ray.available_resources(), ray.cluster_resources()
        held, names = held_by_others(), other_drivers()
    except Exception as error:  # Ray itself may have died
        return f"Ray, which does not answer ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
    pending = [list(one["bundles"].values()) for one in table.values() if one["state"] in ("PENDING", "RESCHEDULING")]
    if not any(len(bundles) == group.workers and all(map(is_worker, bundles)) for bundles in pending):
        return "its workers to start and to load their libraries"

    def holders(name: str) -> str:
        """Return the other sweeps and programs that hold the resource, in words."""
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
