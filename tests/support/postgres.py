"""A PostgreSQL server on loopback, for as long as a test needs it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of a fresh database; skip the test without a server or a driver."""
    with postgres_server() as server:
        yield server.url


class Server:
    """A server that can go and come back."""

    def __init__(self, programs: Path, folder: str, user: str | None) -> None:
        self._programs, self._folder, self._user, self._port = programs, folder, user, free_port()
        self.url = f"postgresql://sweeps@127.0.0.1:{self._port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        where = ["-D", f"{self._folder}/data", "-k", self._folder, "-h", "127.0.0.1", "-p", str(self._port)]
        self._process = subprocess.Popen(
            [self._programs / "postgres", *where, "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            user=self._user,
        )
        ready = [self._programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self._port), "-U", "sweeps"]
        end = time.monotonic() + 300
        while subprocess.run([*ready, "-d", "postgres"], capture_output=True, check=False).returncode:
            assert self._process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # connections end too
            self._process.wait(30)
            self._process = None


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Yield the server of a fresh database; skip the test without a server or a driver."""
    pytest.importorskip("psycopg", reason="asks PostgreSQL through the extra `postgres`, which is not installed")
    # No Python package brings a server. `make setup` installs the driver. `.ci/run` installs the server, and prints a
    # warning if it cannot. Everything of study and store that does not depend on the database is tested on SQLite
    # (test_study.py).
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *filter(None, [_on_path()])]
    if not found:
        pytest.skip("asks a real PostgreSQL server, and none is installed (Debian: apt install postgresql)")
    # PostgreSQL refuses to run as root. The user `nobody` exists on every Unix.
    user = "nobody" if os.geteuid() == 0 else None
    folder = tempfile.mkdtemp(prefix="edp-postgres-")
    if user is not None:
        shutil.chown(folder, user)
    server = Server(found[-1], folder, user)
    try:
        subprocess.run(
            [found[-1] / "initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "sweeps", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            user=user,
        )
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _on_path() -> Path | None:
    place = shutil.which("initdb")
    return Path(place).resolve().parent if place else None
