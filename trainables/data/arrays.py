"""Arrays that are files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.records.files import reading


def load_array(path: Path, *, mapped: bool = True) -> np.ndarray:
    """A NumPy file, mapped into memory or read.

    Raises:
        BrokenFile: naming it, where it is not whole.
    """
    with reading(path):
        found: np.ndarray = np.load(path, mmap_mode="r" if mapped else None)
        return found
