"""Threads that watch while something runs: work that takes long, trials that wait for their workers, and Ray itself.

A driver whose raylet is gone waits for ever, and Ray kills one whose head is gone after a minute, with a line of C++.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import ray

from sweeps.run.progress import PATIENCE_S, Progress
from trainables.workers.client import GroupSpec, held_by_others, other_drivers

Place = str | tuple[str, int]

STALL_PATIENCE_S = 60.0
"""Seconds that a trial waits before it is reported."""
_STALL_EVERY_S = 5.0

_LIVENESS_EVERY_S = 2.0
_MAX_REFUSED = 4
"""Refused connections in a row after which a process of Ray counts as gone."""
_MAX_SILENT = 60
"""Connections in a row without any answer after which its machine counts as gone, or out of reach."""
_FAREWELL_S = 60.0

_LAST_WORD_S = 1.0
"""Seconds that a watch has for its last line when the block ends; one that hangs does not hold up the rest."""


@contextmanager
def watched(look: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run `look` in a thread of its own while the block runs; the event that it gets is set when the block ends."""
    done = threading.Event()
    thread = threading.Thread(target=look, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_LAST_WORD_S)


@contextmanager
def notice(what: str, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Say now and then that `what` goes on while the block runs, where its progress cannot be measured."""
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
    """Report trials that wait for their workers while the block runs, again after twice the time, and so on.

    Args:
        progress: knows what waits, and shows the reports.
        group: the processes that each trial needs.
        patience_s: seconds until the first report.
    """
    said: dict[tuple[str, float], float] = {}

    def look(done: threading.Event) -> None:
        while not done.wait(min(_STALL_EVERY_S, patience_s)):
            now = time.monotonic()
            for what, since in list(progress.waiting.items()):
                waited, key = now - since, (what, since)
                if waited >= said.get(key, patience_s):
                    said[key] = 2 * waited
                    progress.say(f"{what} has waited {waited:.0f} s for {wanted(group)}")

    with watched(look, "stall_reporter"):
        yield


def wanted(group: GroupSpec) -> str:
    """Return what a group of workers that has not started still lacks, by Ray's tables."""
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
        """Return which other sweeps and programs hold the resource."""
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


@contextmanager
def ray_liveness(on_death: Callable[[str], None], last_words: Callable[[str], None]) -> Iterator[None]:
    """Watch Ray's head and this machine's raylet while the block runs; if one is gone, end this process, exit code 1.

    Args:
        on_death: called with what is gone, from another thread, for at most a minute.
        last_words: called with the same, last.
    """
    node = ray._private.worker._global_node
    places: dict[str, Place] = {}
    if node is not None:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        places["Ray's head (GCS)"] = (host.strip("[]"), int(port))
        if os.path.exists(node.raylet_socket_name):
            places["this machine's Ray (raylet)"] = node.raylet_socket_name

    def watch(done: threading.Event) -> None:
        refused, silent = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
        while not done.wait(_LIVENESS_EVERY_S):
            for name, place in places.items():
                answer = _ask(place)
                refused[name] = refused[name] + 1 if answer == "refused" else 0
                silent[name] = silent[name] + 1 if answer == "silent" else 0
                if (refused[name] >= _MAX_REFUSED or silent[name] >= _MAX_SILENT) and not done.is_set():
                    farewell = threading.Thread(target=on_death, args=(f"{name} is gone",), daemon=True)
                    farewell.start()
                    farewell.join(_FAREWELL_S)
                    try:
                        last_words(f"{name} is gone")
                    finally:
                        os._exit(1)

    with watched(watch, "ray_liveness"):
        yield


def _ask(place: Place) -> Literal["here", "refused", "silent"]:
    """Return whether a process listens at `place`. A busy one may be silent for a while."""
    kind = socket.AF_UNIX if isinstance(place, str) else (socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(_LIVENESS_EVERY_S)
        try:
            one.connect(place)
        except (ConnectionRefusedError, FileNotFoundError):
            return "refused"
        except OSError:
            return "silent"
    return "here"
