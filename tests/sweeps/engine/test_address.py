"""RAY_ADDRESS and TMPDIR: what cannot work is one line within seconds."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from edp.spec import UserError
from sweeps.engine.address import asks_for_token, check_address, folder_options, ray_address, usable_cores
from sweeps.engine.session import connect


@pytest.mark.parametrize(("given", "means"), [(None, "local"), ("", "local"), (" ", "local"), ("auto", "auto")])
def test_an_empty_address_is_none(given: str | None, means: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if given is not None:
        monkeypatch.setenv("RAY_ADDRESS", given)
    assert ray_address() == means


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8265", "localhost", "127.0.0.1:notaport", "redis://a:6379", "a:99999", "a b:1"]
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    says = re.escape(f"RAY_ADDRESS = {address!r}: not an address of a cluster; allowed: HOST:PORT")
    with pytest.raises(UserError, match=says):
        connect(address)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_listens_is_known_by_a_connection(scheme: str) -> None:
    with socket.socket() as bound:  # bound and not listening, so that no other process takes the port
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        with pytest.raises(UserError, match=r"no cluster answers there \(.*\); unset it"):
            connect(f"{scheme}127.0.0.1:{bound.getsockname()[1]}")
        assert time.monotonic() - began < 10
        bound.listen()
        check_address(f"{scheme}127.0.0.1:{bound.getsockname()[1]}")
    with pytest.raises(UserError, match="no cluster answers there"):
        check_address("no-such-host.invalid:6379")


def test_a_long_folder_for_temporary_files_is_not_rays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 30)
    assert folder_options() == {}
    monkeypatch.setenv("TMPDIR", "/tmp/" + "x" * 40)
    assert folder_options() == {"_temp_dir": "/tmp/ray"}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match=r"TMPDIR = '/tmp/x+': too long for the sockets of Ray.*at most 39 bytes"):
        folder_options()


class _Head(grpc.GenericRpcHandler):
    """Answers as the head of a cluster that asks for a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        header = dict(handler_call_details.invocation_metadata)

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            if header.get("authorization") != f"Bearer {self._token}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
            return b"id"

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a head whose token is `right`, and none is known here."""
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Head("right"),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "there is none here"),
        ({"RAY_AUTH_TOKEN": "wrong"}, "the one here is another cluster's"),
        ({"RAY_AUTH_TOKEN": "right", "RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE is 'disabled'"),
    ],
)
def test_a_cluster_that_asks_for_a_token_says_so_at_once(
    head: str, variables: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"the cluster asks for its token, and {problem}; allowed: the token in ~/.ray"):
        check_address(head)


def test_the_clusters_token_is_taken_from_where_ray_keeps_it(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("right\n")
    assert asks_for_token(head)
    check_address(head)
    (tmp_path / "other").write_text("wrong")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "other"))
    with pytest.raises(UserError, match="another cluster's"):
        check_address(head)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "right")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    check_address(head)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/job/step", {"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/job/step", {"job/cpu.max": "50000 100000"}, 1),
        ("4:cpu,cpuacct:/job", {"cpu/job/cpu.cfs_quota_us": "300000", "cpu/job/cpu.cfs_period_us": "100000"}, 3),
        ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("0::/", {}, 8),
    ],
)
def test_cores_are_those_of_the_taskset_the_cgroup_and_the_slurm_job(
    group: str, files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    for name, text in ({"../../../proc/self/cgroup": group} | files).items():
        file = tmp_path / "sys/fs/cgroup" / name
        for folder in (tmp_path / "sys/fs/cgroup", file.resolve().parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.resolve().write_text(text + "\n")
    assert usable_cores(tmp_path) == cores
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    assert usable_cores(tmp_path) == min(cores, 2)
