"""`edp-sweep ui`: the Pareto page in this process and the MLflow UI in a child, until Ctrl-C ends both."""

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
from sweeps.store.sweep import Sweep
from sweeps.text.terminal import print_line
from sweeps.tracking.store import check_there, settled_uri

PAGE_PORT, MLFLOW_PORT = 8050, 5000
_SHORTEST = 8
"""Characters of a password."""
_PATIENCE = 90.0
"""Seconds that MLflow may take to start."""


class _Quiet(WSGIRequestHandler):
    """No line for each request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@dataclass(frozen=True)
class Door:
    """Where the page listens, and whom it lets in.

    Attributes:
        host: as it was given.
        address: that it stands for.
        password: that every request needs; None: those who reach it are on this machine.
    """

    host: str
    address: str
    password: str | None
    shown: str = ""
    """What is said of the password; "" where there is none."""

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    @property
    def names(self) -> set[str] | None:
        """That the page answers to; any where it listens on every address."""
        if ip_address(self.address).is_unspecified:
            return None
        return {self.host.lower(), self.address, "localhost", "127.0.0.1", "::1"}


def door(host: str, password_file: Path | None) -> Door:
    """Looks up an address, and finds the password: in a file, or a new one where others can reach the page.

    Raises:
        UserError: for a host that is none, or a file without a password.
    """
    mistake = UserError(
        f"--host = {host!r} cannot be listened on; allowed: an address of this machine (0.0.0.0: all of them)"
    )
    if not host or host != host.strip():
        raise mistake  # an empty one would mean every address
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
    """The first line of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise UserError(f"--password-file = {str(path)!r}: {reason}; allowed: a file that holds a password") from None
    password = lines[0].strip() if lines else ""
    if len(password) < _SHORTEST:
        raise UserError(
            f"--password-file = {str(path)!r}: its first line is the password; allowed: at least {_SHORTEST} characters"
        )
    return password


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


def _without_login(uri: str) -> str:
    """The address of a server as others may see it: without a user's name, a password and options."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


@contextmanager
def mlflow_ui(uri: str, log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """The MLflow UI over a tracking store: its address, and its process where one was started.

    It ends with the block, and with this process, whatever ends that.
    """
    if uri.startswith(("http://", "https://")):
        yield _without_login(uri), None  # a server has its own
        return
    port = free_port("127.0.0.1", MLFLOW_PORT)
    # Through `supervise_child`: it ends the server, and what that starts, also where this process has no time to.
    server = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    # One worker and no job queue: it is up in a few seconds rather than twenty.
    # The store may hold a password, which everybody here would see on a command line.
    settings = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "GIT_PYTHON_REFRESH": "quiet"}
    environment = {**os.environ, **settings, "MLFLOW_BACKEND_STORE_URI": uri}
    with _log_file(log) as file:
        child = subprocess.Popen(
            [sys.executable, "-m", "dashboards.supervise_child", sys.executable, *server, "--no-serve-artifacts"],
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a group of its own, so that all of it can be ended
        )
    try:
        yield f"http://127.0.0.1:{port}", child
    finally:
        _end_group(child)


def _log_file(log: Path) -> IO[bytes]:
    """The log; where it cannot be written, as in somebody else's storage, a file that goes with the process."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")
    except OSError:
        return tempfile.TemporaryFile()


def _end_group(child: subprocess.Popen[bytes]) -> None:
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
    source: Source, output: Path, where: Door, port: int | None, mlflow: str | None, tracking_uri: str | None
) -> BaseWSGIServer:
    app = create(
        source, output=output, hosts=where.names, password=where.password, mlflow=mlflow, tracking_uri=tracking_uri
    )
    wanted = free_port(where.address, PAGE_PORT) if port is None else port
    listener = socket.socket(where.family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        # Bound here: where werkzeug cannot, it prints lines of its own and exits.
        listener.bind((where.address, wanted))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"--host = {where.host}, --port = {wanted}: {error.strerror}; allowed: an address of this machine and a "
            "free port (without --port one is found)"
        ) from None
    return make_server(where.address, wanted, app.server, threaded=True, request_handler=_Quiet, fd=listener.detach())


def _interrupt(signum: int, frame: FrameType | None) -> None:
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
    """Serves both until Ctrl-C, SIGTERM or the terminal's end.

    Args:
        output: the file that Pick writes.
        password_file: holds what a browser is asked for; None: a new one, where other machines reach the page.
        port: of the page; None for 8050, or a free one where that is taken.

    Raises:
        UserError: when the page cannot listen there, or the sweep cannot be read.
    """
    where = door(host, password_file)
    uri = settled_uri(tracking_uri, sweep.record.tracking_uri)
    source = Source(sweep)
    source.read()  # a sweep that cannot be read is no page
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
