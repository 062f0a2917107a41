"""RAY_ADDRESS and TMPDIR: what cannot work is one line within seconds."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.engine.address import check_address, ray_address, usable_cores
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
@pytest.mark.slow
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
