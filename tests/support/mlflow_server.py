"""An MLflow server of a test's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.drivers import below, kill
from tests.support.ports import free_port
from tests.support.waiting import wait_for


class Server:
    """An MLflow server that can go and come back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.uri = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        words = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port), "--workers", "1"]
        store = ["--backend-store-uri", f"sqlite:///{self._folder / 'mlflow.db'}"]
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words, *store, "--artifacts-destination", str(self._folder / "artifacts")],
                env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(lambda: self._answers() or self._process.poll() is not None)
        assert self._process.poll() is None, (self._folder / "server.log").read_text()

    def _answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        for pid in [self._process.pid, *below(self._process.pid)]:
            kill(pid)
        self._process.wait()
