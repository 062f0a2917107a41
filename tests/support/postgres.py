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
    pytest.importorskip("psycopg", reason="asks PostgreSQL through the extra `postgres`, which is not installed")
    # No Python package brings a server. `make setup` installs the driver. `.ci/run` installs the server, and prints a
    # warning if it cannot. Everything of study and store that does not depend on the database is tested on SQLite
    # (test_study.py).
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *filter(None, [_on_path()])]
    if not found:
        pytest.skip("asks a real PostgreSQL server, and none is installed (Debian: apt install postgresql)")
    # PostgreSQL refuses to run as root. The user `nobody` exists on every Unix.
    user = "nobody" if os.geteuid() == 0 else None
    port = free_port()
    folder = tempfile.mkdtemp(prefix="edp-postgres-")
    if user is not None:
        shutil.chown(folder, user)
    data = f"{folder}/data"
    server = None
    try:
        subprocess.run(
            [found[-1] / "initdb", "-D", data, "-A", "trust", "-U", "sweeps", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            user=user,
        )
        server = subprocess.Popen(
            [found[-1] / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", folder, "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            user=user,
        )
        ready = [found[-1] / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-U", "sweeps", "-d", "postgres"]
        end = time.monotonic() + 300
        while subprocess.run(ready, capture_output=True, check=False).returncode:
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        yield f"postgresql://sweeps@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # connections end too
            server.wait(30)
        shutil.rmtree(folder)


def _on_path() -> Path | None:
    place = shutil.which("initdb")
    return Path(place).resolve().parent if place else None
