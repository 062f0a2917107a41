"""RAY_ADDRESS and TMPDIR: what cannot work is one line within seconds."""

from __future__ import annotations

import os
import re
import socket
import time

import pytest

from edp.spec import UserError
from sweeps.run.address import check_address, folder_options, ray_address
from sweeps.run.session import connect


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
