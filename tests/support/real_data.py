"""Where tests find real corpora, which the project does not contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainables.corpora import corpus_in


def real_corpus(name: str) -> Path:
    """Return a public corpus's folder or file in `EDP_DATA_DIR`, else `../shared/data`; skip the test without it."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    data = Path(os.environ.get("EDP_DATA_DIR") or beside)
    # The corpora have licences of their own, so the repository may not contain them, and tests use no network.
    # Generated corpora go through the same readers, splits and training (tests/trainables/corpora/test_readers.py).
    found = corpus_in(data, name)
    if found is None:
        pytest.skip(f"the project contains no real corpus, and {data} no {name}: set EDP_DATA_DIR")
    return found
