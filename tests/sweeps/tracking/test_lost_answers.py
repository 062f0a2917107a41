"""A run is in MLflow once, also where a server has made it and the answer was lost, so that MLflow asks again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from sweeps.tracking.tracker import Tracker
from tests.support.mlflow_server import Server


@pytest.fixture
def lossy(tmp_path: Path, long_story: None) -> Iterator[tuple[str, list[str]]]:
    """The address of a server that loses the first answer to each creation of a run, and what it was asked."""
    server, asked = Server(tmp_path), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = requests.request(
                self.command,
                server.uri + self.path,
                data=body,
                headers={"Content-Type": "application/json"},
                timeout=60,
            )
            if self.path.endswith("runs/create"):
                asked.append(self.path)
                if len(asked) % 2:
                    self.connection.close()
                    return
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = do_PATCH = _pass_on

        def log_message(self, *about: object) -> None:
            """Say nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{proxy.server_port}", asked
    proxy.shutdown()
    proxy.server_close()
    thread.join()
    server.stop()


def test_a_run_whose_creation_mlflow_repeats_is_there_once(lossy: tuple[str, list[str]], tmp_path: Path) -> None:
    uri, asked = lossy
    tracker = Tracker(uri, "e", tmp_path / "artifacts")
    run = tracker.start("s-000", params={"a": 1}, tags={"role": "trial"})
    assert len(asked) == 2, "MLflow's client asks again by itself"
    (found,) = tracker.client.search_runs([tracker.experiment_id])
    assert found.info.run_id == run
    assert found.data.params == {"a": "1"}
    assert tracker.failures == 0
