"""The cluster that a sweep runs on: the address in RAY_ADDRESS, and the folder of a Ray that starts here.

Ray itself waits for minutes for a cluster that is not there, and fails on a long folder name after half a minute.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from edp.spec import UserError
from sweeps.text.secrets import redacted

_PATIENCE_S = 5.0
_HOST_AND_PORT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_UNIX_SOCKET = 107
"""Largest number of bytes in the path of a Unix socket."""
_BELOW_TMPDIR = len("/ray/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store")
_SHORT = "/tmp"


def ray_address() -> str:
    """Return the address in RAY_ADDRESS: `local` if it is not set or empty.

    `local` is not Ray's default, which would join the local cluster of another sweep, and die with it.
    """
    return os.environ.get("RAY_ADDRESS", "").strip() or "local"


def check_address(address: str) -> None:
    """Raise if no cluster can be at `address`, or be started here (`local`), within seconds.

    Raises:
        UserError: for an address of another form, or one where nothing answers; for `local` as `folder_options`.
    """
    if address == "local":
        folder_options()
    if address in ("local", "auto"):
        return
    found = _HOST_AND_PORT.fullmatch(address.removeprefix("ray://"))
    if found is None or int(found[2]) > 65535:
        raise UserError(
            f"RAY_ADDRESS = {redacted(address)!r}: not an address of a cluster; allowed: HOST:PORT, ray://HOST:PORT, "
            "auto (the cluster on this machine), or local (or unset) to start Ray on this machine"
        )
    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=_PATIENCE_S).close()
    except OSError as error:
        raise no_cluster(address, error.strerror or str(error)) from None
    if not asks_for_token(address):
        return
    given, mode = token(), os.environ.get("RAY_AUTH_MODE", "token")
    if mode != "token":
        problem = f"RAY_AUTH_MODE is {mode!r}"
    elif given is None:
        problem = "there is none here"
    elif asks_for_token(address, given):
        problem = "the one here is another cluster's"
    else:
        return
    raise UserError(
        f"RAY_ADDRESS = {address!r}: the cluster asks for its token, and {problem}; allowed: the token in "
        "~/.ray/auth_token, as `ray get-auth-token` prints it on the head, or in RAY_AUTH_TOKEN"
    )


def asks_for_token(address: str, given: str | None = None) -> bool:
    """Return True if the head at HOST:PORT answers no call without a token, or not with the one that is given.

    `ray start` makes such a cluster, and Ray itself would try for half a minute before it says that none is there.
    """
    import grpc

    if not _HOST_AND_PORT.fullmatch(address):
        return False  # a client's server checks it itself
    header = [("authorization", f"Bearer {given}")] if given is not None else None
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")(b"", timeout=_PATIENCE_S, metadata=header)
        except grpc.RpcError as error:  # any other code leaves it to Ray to judge the address
            return bool(error.code() is grpc.StatusCode.UNAUTHENTICATED)
    return False


def token() -> str | None:
    """Return the token of a cluster that this machine has, where Ray looks for it; None if there is none."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given
    try:
        file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
        return file.read_text().strip() or None
    except (OSError, RuntimeError, UnicodeDecodeError):  # a container's user may have no home
        return None


def no_cluster(address: str, why: str = "") -> UserError:
    """Return the error for an address where no cluster answers."""
    return UserError(
        f"RAY_ADDRESS = {redacted(address)!r}: no cluster answers there{f' ({why})' if why else ''}; "
        "unset it to start Ray on this machine"
    )


def usable_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may use: those of its taskset, cgroup and Slurm job.

    Ray itself counts the machine's, except in a container.

    Args:
        root: the folder of `proc` and `sys`.
    """
    limits = [float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)]
    with suppress(KeyError, ValueError):
        limits.append(float(os.environ["SLURM_CPUS_ON_NODE"]))
    with suppress(OSError, ValueError):
        groups = dict(line.split(":", 2)[1:] for line in (root / "proc/self/cgroup").read_text().splitlines())
        for name, kind in (("", ""), ("cpu,cpuacct", "cpu"), ("cpu", "cpu")):
            own = root / "sys/fs/cgroup" / kind / groups.get(name, "/").lstrip("/")
            limits += [limit for folder in (own, *own.parents) if (limit := _quota(folder)) is not None]
    return max(1, int(min(limits)))


def _quota(group: Path) -> float | None:
    """Return the cores of a cgroup, None for no limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        with suppress(OSError, ValueError):
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if float(quota) > 0:
                return float(quota) / float(period)
    return None


def folder_options() -> dict[str, Any]:
    """Return the options of `ray.init` for the folder of a Ray on this machine: /tmp/ray if TMPDIR does not do.

    Raises:
        UserError: if neither does.
    """
    name = next((name for name in ("RAY_TMPDIR", "TMPDIR") if os.environ.get(name)), "TMPDIR")
    folder, most = os.environ.get(name) or _SHORT, _UNIX_SOCKET - _BELOW_TMPDIR
    if len(os.fsencode(folder)) > most:
        problem = "too long for the sockets of Ray"
    elif not _writable(folder):
        problem = "Ray cannot write it"
    else:
        return {}
    if _writable(_SHORT):
        return {"_temp_dir": f"{_SHORT}/ray"}
    raise UserError(
        f"{name} = {folder!r}: {problem}, and {_SHORT} cannot be written; "
        f"allowed: a folder that can be written, whose name has at most {most} bytes"
    )


def _writable(folder: str) -> bool:
    """Return True if a folder can be written, or made."""
    place = Path(folder)
    return os.access(next(one for one in (place, *place.absolute().parents) if one.exists()), os.W_OK)
