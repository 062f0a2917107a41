"""`edp-sweep ui`: serve the Pareto page, Optuna's dashboard and the MLflow UI on this machine, until Ctrl-C."""

from __future__ import annotations

import copy
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import optuna
import optuna_dashboard
import requests
from rich.console import Console
from werkzeug.exceptions import ServiceUnavailable
from werkzeug.serving import make_server

from dashboards.pareto.app import create
from dashboards.pareto.guard import HOST, shielded
from dashboards.pareto.source import Source
from edp.spec import UserError
from sweeps.store.sqlite_locks import wait_at_most
from sweeps.store.sweep import Sweep
from sweeps.text.terminal import print_line
from sweeps.tracking.store import check_there, settled_uri

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

PAGE_PORT, MLFLOW_PORT, OPTUNA_PORT = 8050, 5000, 8080
_LOCK_PATIENCE_S = 5.0
"""Seconds that a request waits for a file that another process has locked."""
_PATIENCE = 90.0
"""Seconds that MLflow's server may take to start."""


def listen(*ports: int) -> socket.socket:
    """Listen on the first of the ports that is free; 0 is any free port.

    Raises:
        UserError: if none is free.
    """
    reason = None
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Bound here, because werkzeug prints lines of its own and exits if it cannot bind.
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            listener.close()
            reason = error.strerror
        else:
            return listener
    raise UserError(f"--port = {ports[0]}: {reason}; allowed: a free port (without --port, one is found)")


@contextmanager
def _served(app: WSGIApplication, listener: socket.socket) -> Iterator[None]:
    """Serve an app in threads of this process until the block ends."""
    port = listener.getsockname()[1]
    server = make_server(HOST, port, app, threaded=True, fd=listener.detach())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _address(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}"


def optuna_page(source: Source) -> WSGIApplication:
    """Return Optuna's dashboard on a copy of the study in memory, made anew when the sweep has changed.

    It takes no writes, since the driver alone writes the study.
    """

    @functools.lru_cache(maxsize=1)
    def copied(version: str) -> WSGIApplication:
        sweep, objectives = source.sweep, source.read()[1].recipe.search.objectives
        study = optuna.create_study(study_name=sweep.name, directions=["minimize"] * len(objectives))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names(list(objectives))
        for told in sweep.told():
            trial = copy.copy(told)
            trial.user_attrs = told.user_attrs.get("metrics", {})  # the others are documents
            study.add_trial(trial)
        return optuna_dashboard.wsgi(study._storage)

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            answer = copied(source.read()[0])
        except UserError as error:
            return ServiceUnavailable(str(error))(environ, start_response)
        return answer(environ, start_response)

    return shielded(app, read_only=True)


def _without_login(uri: str) -> str:
    """Return the URL of a server without user name, password and query."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


@contextmanager
def mlflow_ui(uri: str, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """Yield the URL of the MLflow UI of a tracking store, and its process, if one was started.

    The process ends with the block.
    """
    if uri.startswith(("http://", "https://")):
        yield _without_login(uri), None  # an MLflow server has its own UI
        return
    with listen(MLFLOW_PORT, 0) as free:
        port = free.getsockname()[1]
    # One worker and no job queue, so that the server starts in a few seconds rather than twenty.
    server = ["-m", "mlflow", "server", "--host", HOST, "--port", str(port), "--workers", "1"]
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "GIT_PYTHON_REFRESH": "quiet"}
    # The store's URI may hold a password, and every user of the machine can read command lines.
    environment = {**os.environ, **settings, "MLFLOW_BACKEND_STORE_URI": uri}
    with _log_file(log) as file:
        child = subprocess.Popen(
            [sys.executable, *server, "--no-serve-artifacts"],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a process group of its own, which can be ended as a whole
        )
    try:
        yield f"http://{HOST}:{port}", child
    finally:
        _end_group(child)


def _log_file(log: Path) -> IO[bytes]:
    """Open the log. If it cannot be written, as in another user's storage, open a temporary file."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")
    except OSError:
        return tempfile.TemporaryFile()


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the child's process group: with SIGTERM and, after five seconds, with SIGKILL."""
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
    """Wait until MLflow answers. Return False if it ended or took too long."""
    until = time.monotonic() + _PATIENCE
    while child.poll() is None and time.monotonic() < until:
        try:
            if requests.get(f"{url}/health", timeout=2).ok:
                return True
        except requests.RequestException:
            time.sleep(0.2)
    return False


def serve(
    sweep: Sweep,
    *,
    output: Path,
    port: int | None,
    tracking_uri: str | None,
    browser: bool,
    out: Console,
    err: Console,
) -> None:
    """Serve the pages until Ctrl-C, SIGTERM or the terminal's end.

    Args:
        output: the file that the button Pick writes.
        port: port of the page; None: 8050, or a free one if it is taken.
        out: prints the addresses.
        err: prints what did not start, and the end.

    Raises:
        UserError: if the page cannot listen there, or the sweep cannot be read.
    """
    uri = settled_uri(tracking_uri, sweep.record.tracking_uri)
    source = Source(sweep)
    source.read()  # raises if the sweep cannot be read
    wait_at_most(_LOCK_PATIENCE_S)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it prints a line for each request
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.default_int_handler)
    log = sweep.log.with_name(f"{sweep.name}-mlflow.log")
    check_there(uri)
    with (
        listen(PAGE_PORT, 0) if port is None else listen(port) as door,
        listen(OPTUNA_PORT, 0) as beside,
        suppress(KeyboardInterrupt),
        mlflow_ui(uri, log) as (mlflow, child),
    ):
        url, study = _address(door), f"{_address(beside)}/dashboard/studies/0"
        page = create(source, output=output, mlflow=mlflow, optuna=study, tracking_uri=tracking_uri)
        with _served(page.server, door), _served(optuna_page(source), beside):
            _say(out, f"Pareto page  {url}")
            if browser and _has_screen():
                webbrowser.open(url)
            _say(out, f"Optuna       {study}")
            if child is None or _answers(mlflow, child):
                _say(out, f"MLflow UI    {source.run_page(mlflow, None, tracking_uri)}")
            else:
                _say(err, f"MLflow UI    did not start; its log: {log}")
            _say(out, "Ctrl-C ends all.")
            while True:
                time.sleep(0.5)  # a signal that arrives in another thread does not end this thread's sleep
    _say(err, "ended")


def _has_screen() -> bool:
    """Return True if a graphical browser can be shown. Without a screen, Python starts a text browser."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _say(console: Console, line: str) -> None:
    """Print a line at once, also to a pipe."""
    print_line(console, line)
    console.file.flush()
