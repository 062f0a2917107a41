"""Ports for servers that tests start as processes of their own."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A free port of the loopback address, from between Ray's workers' (10002 to 19999) and the system's own choices
    (from 32768): any of these may be taken between this answer and the server's start."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
