"""This machine is never reached by a proxy."""

from __future__ import annotations

import pytest
from requests.utils import should_bypass_proxies

from sweeps.commands.app import _reach_loopback_directly


@pytest.mark.parametrize("given", [{}, {"no_proxy": "corp"}, {"NO_PROXY": "corp,127.0.0.1"}, {"no_proxy": "*"}])
def test_loopback_is_reached_directly_whatever_the_environment_names(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, given.get(name, ""))
    monkeypatch.setenv("http_proxy", "http://10.255.255.1:3128")
    _reach_loopback_directly()
    _reach_loopback_directly()
    for host in ("127.0.0.1:8050", "localhost:5000", "[::1]:8050"):
        assert should_bypass_proxies(f"http://{host}/health", no_proxy=None), host
    if given:
        assert should_bypass_proxies("http://corp/", no_proxy=None)
    assert should_bypass_proxies("http://example.org/", no_proxy=None) == ("*" in given.values())
