"""The page of a sweep, as a thread or as `edp-sweep ui` in a process of its own, and waiting for what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

from dashboards.pareto.app import create
from dashboards.pareto.source import Source


def settled(tab: Any, selector: str, words: str) -> str:
    """The text of an element once it holds `words`."""
    tab.wait_for_function("([s, w]) => document.querySelector(s)?.innerText.includes(w)", arg=[selector, words])
    return str(tab.inner_text(selector))


class Served:
    """`edp-sweep ui` on a sweep, started in `folder`; ready once it is made."""

    def __init__(self, name: str, storage: Path, folder: Path) -> None:
        command = [sys.executable, "-m", "sweeps.commands", "ui", name, "--storage", str(storage), "--no-browser"]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if "Ctrl-C" in line:
                break
        self.page = self._url("Pareto page")
        self.sweep_in_mlflow = self._url("MLflow UI")
        self.mlflow = self.sweep_in_mlflow.split("/#")[0]
        self.picked = folder / "picked.yaml"

    def _url(self, what: str) -> str:
        found = [re.search(r"http://\S+", line) for line in self.lines if line.startswith(what)]
        assert found, self.lines
        assert found[0], self.lines
        return found[0].group()

    def end(self) -> int:
        """Ctrl-C that arrives in another thread than the main one, as the kernel may choose; the exit code."""
        threads = sorted(int(one) for one in os.listdir(f"/proc/{self.process.pid}/task"))
        os.kill(threads[1], signal.SIGINT)
        code = self.process.wait(timeout=300)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def complains(message: Any) -> bool:
    """Whether a page says in the console that something is wrong. WebGL without a GPU says that it is slow."""
    return message.type in ("error", "warning") and "GPU stall" not in message.text


@contextmanager
def window(chromium: Any, width: int) -> Iterator[Any]:
    """Yield a new window of this width. What a page in it complains of fails the test."""
    context = chromium.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(120_000)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if complains(message) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    assert wrong == []
    context.close()


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""


@contextmanager
def served(source: Source, folder: Path) -> Iterator[str]:
    """Yield the address of the page, served by a thread. Pick writes into `folder`."""
    app = create(source, output=folder / "picked.yaml")
    server = make_server("127.0.0.1", 0, app.server, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
