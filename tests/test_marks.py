"""Marks that follow from what a test uses, and a guard that they do."""

from __future__ import annotations

import os
import subprocess

import pytest


def marks(request: pytest.FixtureRequest) -> set[str]:
    return {mark.name for mark in request.node.iter_markers()}


def test_ray_does_not_start_without_its_mark(request: pytest.FixtureRequest) -> None:
    assert "ray" not in marks(request)
    with pytest.raises(AssertionError, match="own_ray"):
        subprocess.Popen(["/nowhere/gcs_server"])


def test_a_test_that_may_start_ray_is_marked(request: pytest.FixtureRequest, own_ray: None) -> None:
    assert "ray" in marks(request)
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@ray stress"), "tests of Ray are not kept in one of pytest's processes"
    with pytest.raises(FileNotFoundError):
        subprocess.Popen(["/nowhere/gcs_server"])


def test_a_test_that_kills_is_marked(request: pytest.FixtureRequest, kill: object) -> None:
    assert {"stress", "timeout"} <= marks(request)
