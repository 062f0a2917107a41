"""A process that listens, one that is gone, one that is busy."""

from __future__ import annotations

import socket
from pathlib import Path

from sweeps.run.watch import _ask


def test_a_listener_is_told_from_one_that_is_gone(tmp_path: Path) -> None:
    place = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place)
        listener.listen()
        assert _ask(place) == "here"
    assert _ask(place) == "refused", "the file is there, nobody behind it"
    assert _ask(str(tmp_path / "nothing")) == "refused"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = listener.getsockname()
        listener.listen()
        assert _ask(address) == "here"
    assert _ask(address) == "refused"


def test_a_listener_that_takes_nobody_is_busy_and_not_gone(tmp_path: Path) -> None:
    place = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(place)
        listener.listen(0)
        first.connect(place)
        assert _ask(place) == "silent"
