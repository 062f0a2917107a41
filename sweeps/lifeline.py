"""Ray's own end, noticed: a driver whose raylet is gone waits for ever, and one whose head is gone is killed by Ray
after a minute with a line of C++."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

_EVERY_S = 2.0
_PATIENCE = 4
"""So many tries in a row that nobody answers are an end."""


@contextmanager
def lifeline(on_death: Callable[[str], None]) -> Iterator[None]:
    """Watches Ray's head and this machine's raylet while the block runs.

    Args:
        on_death: called with what is gone, from another thread; this process ends when it returns, with exit code 1.
    """
    node = ray._private.worker._global_node
    done = threading.Event()
    places: dict[str, str | tuple[str, int]] = {}
    if node is not None:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        places["Ray's head (GCS)"] = (host.strip("[]"), int(port))
        if os.path.exists(node.raylet_socket_name):
            places["this machine's Ray (raylet)"] = node.raylet_socket_name

    def watch() -> None:
        failed = dict.fromkeys(places, 0)
        while not done.wait(_EVERY_S):
            for name, place in places.items():
                failed[name] = 0 if _answers(place) else failed[name] + 1
                if failed[name] >= _PATIENCE and not done.is_set():
                    try:
                        on_death(f"{name} is gone")
                    finally:
                        os._exit(1)

    thread = threading.Thread(target=watch, name="lifeline", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _answers(place: str | tuple[str, int]) -> bool:
    kind = socket.AF_UNIX if isinstance(place, str) else (socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(_EVERY_S)
        try:
            one.connect(place)
        except OSError:
            return False
    return True
