"""Ray's own end, noticed: a driver whose raylet is gone waits for ever, and one whose head is gone is killed by Ray
after a minute with a line of C++."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import ray

from sweeps.run.watching import watched

Place = str | tuple[str, int]

_EVERY_S = 2.0
_REFUSED = 4
"""So many tries in a row that nobody listens are an end: the process is gone."""
_SILENT = 60
"""So many in a row without any answer are one too: the machine is gone, or has been out of reach for minutes."""
_FAREWELL_S = 60.0


@contextmanager
def ray_liveness(on_death: Callable[[str], None], last_words: Callable[[str], None]) -> Iterator[None]:
    """Watches Ray's head and this machine's raylet while the block runs; without them this process ends, exit code 1.

    Args:
        on_death: told what is gone, from another thread; has a minute.
        last_words: told the same, last.
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
        while not done.wait(_EVERY_S):
            for name, place in places.items():
                answer = _ask(place)
                refused[name] = refused[name] + 1 if answer == "refused" else 0
                silent[name] = silent[name] + 1 if answer == "silent" else 0
                if (refused[name] >= _REFUSED or silent[name] >= _SILENT) and not done.is_set():
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
    """Whether a process listens at `place`. One that is busy may be silent for a while."""
    kind = socket.AF_UNIX if isinstance(place, str) else (socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
    with socket.socket(kind, socket.SOCK_STREAM) as one:
        one.settimeout(_EVERY_S)
        try:
            one.connect(place)
        except (ConnectionRefusedError, FileNotFoundError):
            return "refused"
        except OSError:
            return "silent"
    return "here"
