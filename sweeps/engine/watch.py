"""Threads that watch while a block runs: long work, trials that wait for their workers, and Ray itself.

Without them a driver whose raylet has died waits for ever, and a driver whose head has died is killed by Ray after a
minute, with a line of C++.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn

import ray

from sweeps.engine.progress import PATIENCE_S, Progress
from sweeps.store.lock import STOP
from trainables.workers.client import GroupSpec
from trainables.workers.ray_internals import held_by_others, other_drivers, raylet_socket

Place = str | tuple[str, int]

STALL_PATIENCE_S = 60.0
"""Seconds that a trial waits for workers before it is reported."""
_STALL_EVERY_S = 5.0
_STOP_EVERY_S = 1.0

_LIVENESS_EVERY_S = 2.0
_MAX_REFUSED = 4
"""Refused connections in a row after which a process of Ray counts as gone."""
_MAX_SILENT = 60
"""Connections in a row without any answer after which its machine counts as gone, or out of reach."""
_FAREWELL_S = 60.0
"""Seconds that `on_death` may take, which may itself call Ray and never return."""

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
def notice(what: str, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
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


@contextmanager
def stop_requests(folder: Path) -> Iterator[None]:
    """Send this process a Ctrl-C whenever the file `STOP` is in a sweep's folder while the block runs; remove it."""
    request = folder / STOP

    def look(done: threading.Event) -> None:
        while not done.wait(_STOP_EVERY_S):
            if request.exists():
                request.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGINT)

    with watched(look, "stop_requests"):
        yield
    request.unlink(missing_ok=True)


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


@contextmanager
def ray_liveness(on_death: Callable[[str], None], last_words: Callable[[str], None]) -> Iterator[None]:
    """Watch Ray's head and this machine's raylet while the block runs. If one dies, exit this process with code 1.

    Args:
        on_death: see `leave`.
        last_words: see `leave`.
    """
    own = raylet_socket()
    places: dict[str, Place] = {}
    if own is not None:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        places["Ray's head (GCS)"] = (host.strip("[]"), int(port))
        if os.path.exists(own):
            places["this machine's Ray (raylet)"] = own

    def watch(done: threading.Event) -> None:
        refused, silent = dict.fromkeys(places, 0), dict.fromkeys(places, 0)
        while not done.wait(_LIVENESS_EVERY_S):
            for name, place in places.items():
                answer = _ask(place)
                refused[name] = refused[name] + 1 if answer == "refused" else 0
                silent[name] = silent[name] + 1 if answer == "silent" else 0
                if (refused[name] >= _MAX_REFUSED or silent[name] >= _MAX_SILENT) and not done.is_set():
                    leave(f"{name} is gone", on_death, last_words)

    with watched(watch, "ray_liveness"):
        yield


def leave(what: str, on_death: Callable[[str], None], last_words: Callable[[str], None], code: int = 1) -> NoReturn:
    """Exit this process, whatever its other threads do.

    Args:
        on_death: called with the reason from another thread, for at most a minute.
        last_words: called with the reason just before the exit.
    """
    farewell = threading.Thread(target=on_death, args=(what,), daemon=True)
    farewell.start()
    farewell.join(_FAREWELL_S)
    try:
        last_words(what)
    finally:
        os._exit(code)


def _ask(place: Place) -> Literal["here", "refused", "silent"]:
    """Try to connect to `place`. A busy process may be silent for a while."""
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
