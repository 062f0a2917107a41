"""`edp-sweep ui`: serve the Pareto page in this process and the MLflow UI in a child process, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import IO
from urllib.parse import urlsplit, urlunsplit

import requests
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from dashboards.pareto.app import create
from dashboards.pareto.source import Source
from edp.spec import UserError
from sweeps.commands.console import err, out
from sweeps.store.sqlite_locks import wait_at_most
from sweeps.store.sweep import Sweep
from sweeps.text.terminal import print_line
from sweeps.tracking.store import check_there, settled_uri

PAGE_PORT, MLFLOW_PORT = 8050, 5000
_SHORTEST = 8
"""Fewest characters of a password."""
_LOCK_PATIENCE_S = 5.0
"""Seconds that a request waits for a file that another process has locked."""
_PATIENCE = 90.0
"""Seconds that MLflow's server may take to start."""


class _Quiet(WSGIRequestHandler):
    """A request handler that prints no line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""


@dataclass(frozen=True)
class Door:
    """The address that the page listens on, and its password.

    Attributes:
        host: the host as the user gave it.
        address: the IP address of `host`.
        password: the password that every request needs; None if only this machine can reach the page.
        shown: the text that is printed about the password.
    """

    host: str
    address: str
    password: str | None
    shown: str = ""

    @property
    def family(self) -> socket.AddressFamily:
        """The address family of the socket."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    @property
    def names(self) -> set[str] | None:
        """The host names that the page answers to; None for any name, if it listens on every address."""
        if ip_address(self.address).is_unspecified:
            return None
        return {self.host.lower(), self.address, "localhost", "127.0.0.1", "::1"}


def door(host: str, password_file: Path | None) -> Door:
    """Look up the host's address, and take the password from a file or, if other machines reach the page, make one.

    Raises:
        UserError: for a host without an address, or a file without a password.
    """
    mistake = UserError(
        f"--host = {host!r} cannot be listened on; allowed: an address of this machine (0.0.0.0: all of them)"
    )
    if not host or host != host.strip():
        raise mistake  # the system takes an empty host for every address
    try:
        address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]).partition("%")[0]
    except (OSError, UnicodeError):
        raise mistake from None
    if password_file is not None:
        return Door(host, address, _password_in(password_file), f"that in {password_file}")
    if ip_address(address).is_loopback:
        return Door(host, address, None)
    password = secrets.token_urlsafe(16)
    return Door(host, address, password, password)


def _password_in(path: Path) -> str:
    """Return the password in the first line of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"--password-file = {str(path)!r}: {reason}; allowed: a file that holds a password") from None
    password = lines[0].strip() if lines else ""
    if len(password) < _SHORTEST:
        raise UserError(
            f"--password-file = {str(path)!r}: its first line is the password; allowed: at least {_SHORTEST} characters"
        )
    return password


def free_port(host: str, wish: int) -> int:
    """Return the port `wish` if it is free, else another free port."""
    for port in (wish, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError(f"--host = {host!r} cannot be listened on; allowed: an address of this machine")


def _without_login(uri: str) -> str:
    """Return the URL of a server without user name, password and query."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


@contextmanager
def mlflow_ui(uri: str, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """Yield the URL of the MLflow UI of a tracking store, and its process, if one was started.

    The process ends with the block, and also if this process is killed.
    """
    if uri.startswith(("http://", "https://")):
        yield _without_login(uri), None  # an MLflow server has its own UI
        return
    port = free_port("127.0.0.1", MLFLOW_PORT)
    # One worker and no job queue, so that the server starts in a few seconds rather than twenty.
    server = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "GIT_PYTHON_REFRESH": "quiet"}
    # The store's URI may hold a password, and every user of the machine can read command lines.
    environment = {**os.environ, **settings, "MLFLOW_BACKEND_STORE_URI": uri}
    with _log_file(log) as file:
        # `supervise_child` ends the server and its processes if this process is killed.
        child = subprocess.Popen(
            [sys.executable, "-m", "dashboards.supervise_child", sys.executable, *server, "--no-serve-artifacts"],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a process group of its own, which can be ended as a whole
        )
    try:
        yield f"http://127.0.0.1:{port}", child
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
    if child.stdin is not None:
        child.stdin.close()
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


def _page_server(
    source: Source, output: Path, where: Door, port: int | None, mlflow: str | None, tracking_uri: str | None
) -> BaseWSGIServer:
    """Return the page's server, listening at `where`.

    Raises:
        UserError: if it cannot listen there.
    """
    app = create(
        source, output=output, hosts=where.names, password=where.password, mlflow=mlflow, tracking_uri=tracking_uri
    )
    wanted = free_port(where.address, PAGE_PORT) if port is None else port
    listener = socket.socket(where.family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Bound here, because werkzeug prints lines of its own and exits if it cannot bind.
        listener.bind((where.address, wanted))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host = {where.host}, --port = {wanted}: {error.strerror}; allowed: an address of this machine and a "
            "free port (without --port, one is found)"
        ) from None
    return make_server(where.address, wanted, app.server, threaded=True, request_handler=_Quiet, fd=listener.detach())


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt


def serve(
    sweep: Sweep,
    *,
    output: Path,
    host: str,
    password_file: Path | None,
    port: int | None,
    tracking_uri: str | None,
    browser: bool,
) -> None:
    """Serve the page and the MLflow UI until Ctrl-C, SIGTERM or the terminal's end.

    Args:
        output: the file that the button Pick writes.
        password_file: file with the page's password; None: a new password, if other machines reach the page.
        port: port of the page; None: 8050, or a free one if it is taken.

    Raises:
        UserError: if the page cannot listen there, or the sweep cannot be read.
    """
    where = door(host, password_file)
    uri = settled_uri(tracking_uri, sweep.record.tracking_uri)
    source = Source(sweep)
    source.read()  # raises if the sweep cannot be read
    wait_at_most(_LOCK_PATIENCE_S)
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, _interrupt)
    log = sweep.log.with_name(f"{sweep.name}-mlflow.log")
    try:
        check_there(uri)
        with mlflow_ui(uri, log) as (mlflow, child):
            server = _page_server(source, output, where, port, mlflow, tracking_uri)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                shown = f"[{host}]" if ":" in host else host
                if where.password is not None:
                    _say(f"password     {where.shown} (under any user's name)")
                url = f"http://{shown}:{server.port}"
                _say(f"Pareto page  {url}")
                if browser and _has_screen():
                    webbrowser.open(url)
                if child is None or _answers(mlflow, child):
                    _say(f"MLflow UI    {source.run_page(mlflow, None, tracking_uri)}")
                    if (trials := source.trials_page(mlflow, tracking_uri)) is not None:
                        _say(f"  its trials {trials}")
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
    """Return True if a graphical browser can be shown. Without a screen, Python starts a text browser."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _say(line: str, to_err: bool = False) -> None:
    """Print a line at once, also to a pipe."""
    console = err if to_err else out
    print_line(console, line)
    console.file.flush()
