"""Where tests find real corpora, which the project does not contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def real_corpus(name: str) -> Path:
    """The folder of a public corpus: in `EDP_DATA_DIR`, else in `../shared/data`; skips without it."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("EDP_DATA_DIR") or beside) / name
    # The corpora have licences of their own, so they are not ours to put here, and a test may not download them.
    # Generated ones run the same readers, splits and training everywhere (tests/trainables/corpora/test_readers.py).
    if not folder.is_dir():
        pytest.skip(f"the project contains no real corpus, and {folder.parent} no {name}/: set EDP_DATA_DIR")
    return folder
