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
    """Mount a file system of `size` (`12m`) at `place`; skip the test without the permission to mount."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "edp-sweeps-test", str(place)]
    # Only a small disk of its own can be filled safely: filling the machine's disk would end every other program that
    # writes there. Without the permission, test_files.py raises the same error from the write itself.
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("fills a file system of its own, which only root may mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
