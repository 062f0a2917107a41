"""Disks that are full for sure, and nobody else's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own at `place`, as large as `size` says (`12m`); a skip where there can be none."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "edp-sweeps-test", str(place)]
    # A disk is full for sure only where it is a small one of the test's own: filling the machine's would end whatever
    # else writes there. Who may not mount has test_files.py, which raises the same error from the write itself.
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("fills a file system of its own, which only root may mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
