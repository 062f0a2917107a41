"""`edp-sweep ui`: the Pareto page in this process and the MLflow UI in a child, until Ctrl-C ends both."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import requests
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from dashboards.pareto.app import create
from dashboards.pareto.data import Source
from edp.spec import UserError
from sweeps.cli.console import err, out
from sweeps.formatting.lines import print_line
from sweeps.state.sweep import Sweep

PAGE_PORT, MLFLOW_PORT = 8050, 5000
_PATIENCE = 90.0
"""Seconds that MLflow may take to start."""


class _Quiet(WSGIRequestHandler):
    """No line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def free_port(host: str, wish: int) -> int:
    """`wish` where nobody listens on it, else a port that is free."""
    for port in (wish, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError(f"--host = {host!r} cannot be listened on; allowed: an address of this machine")


@contextmanager
def mlflow_ui(uri: str, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """The MLflow UI over a tracking store: its address, and its process where one was started."""
    if uri.startswith(("http://", "https://")):
        yield uri.rstrip("/"), None  # a server has its own
        return
    port = free_port("127.0.0.1", MLFLOW_PORT)
    log.parent.mkdir(parents=True, exist_ok=True)
    words = ["-m", "mlflow", "server", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port)]
    # One worker and no job queue: it is up in a few seconds rather than twenty.
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "GIT_PYTHON_REFRESH": "quiet"}
    with log.open("wb") as file:
        child = subprocess.Popen(
            [sys.executable, *words, "--workers", "1", "--no-serve-artifacts"],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a group of its own, so that all of it can be ended
        )
    try:
        yield f"http://127.0.0.1:{port}", child
    finally:
        _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, sign)
        except ProcessLookupError:
            break
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    child.wait()


def _answers(url: str, child: subprocess.Popen[bytes]) -> bool:
    """Waits until MLflow answers; False where it ended or took too long."""
    until = time.monotonic() + _PATIENCE
    while child.poll() is None and time.monotonic() < until:
        try:
            if requests.get(f"{url}/health", timeout=2).ok:
                return True
        except requests.RequestException:
            time.sleep(0.2)
    return False


def _page_server(
    source: Source, output: Path, host: str, port: int | None, mlflow: str, tracking_uri: str | None
) -> BaseWSGIServer:
    names = None if host in ("0.0.0.0", "::") else {host, "localhost", "127.0.0.1", "::1"}
    app = create(source, output=output, hosts=names, mlflow=mlflow, tracking_uri=tracking_uri)
    wanted = free_port(host, PAGE_PORT) if port is None else port
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Bound here: where werkzeug cannot, it prints lines of its own and exits.
        listener.bind((host, wanted))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host = {host}, --port = {wanted}: {error.strerror}; allowed: an address of this machine and a free "
            "port (without --port one is found)"
        ) from None
    return make_server(host, wanted, app.server, threaded=True, request_handler=_Quiet, fd=listener.detach())


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def serve(
    sweep: Sweep,
    *,
    output: Path,
    host: str,
    port: int | None,
    tracking_uri: str | None,
    browser: bool,
) -> None:
    """Serves both until Ctrl-C, SIGTERM or the terminal's end.

    Args:
        output: the file that Pick writes.
        port: of the page; None for 8050, or a free one where that is taken.

    Raises:
        UserError: when the page cannot listen there, or the sweep cannot be read.
    """
    uri = tracking_uri or sweep.record.tracking_uri
    source = Source(sweep)
    source.read()  # a sweep that cannot be read is no page
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _interrupt)
    log = sweep.log.with_name(f"{sweep.name}-mlflow.log")
    try:
        with mlflow_ui(uri, log) as (mlflow, child):
            server = _page_server(source, output, host, port, mlflow, tracking_uri)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                shown = f"[{host}]" if ":" in host else host
                url = f"http://{shown}:{server.port}"
                _say(f"Pareto page  {url}")
                if browser and _has_screen():
                    webbrowser.open(url)
                if child is None or _answers(mlflow, child):
                    _say(f"MLflow UI    {source.run_page(mlflow, None, tracking_uri)}")
                else:
                    _say(f"MLflow UI    did not start; its log: {log}", to_err=True)
                _say("Ctrl-C ends both.")
                while True:
                    time.sleep(3600)
            finally:
                server.shutdown()
                server.server_close()
    except KeyboardInterrupt:
        _say("ended", to_err=True)


def _has_screen() -> bool:
    """Without one, Python would start a browser of text in the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _say(line: str, to_err: bool = False) -> None:
    console = err if to_err else out
    print_line(console, line)
    console.file.flush()
