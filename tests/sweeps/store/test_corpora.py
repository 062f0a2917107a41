"""Corpora whose files have changed since a sweep began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.store.corpora import CORPORA, check_corpora, keep_corpora
from tests.support.tiny import spec as tiny_spec

LINE = {"tokens": ["play", "jazz"], "tags": ["O", "B-genre"], "intent": "play"}


def test_a_corpus_that_has_changed_is_refused_by_its_field(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text(f"{json.dumps(LINE)}\n" * 3)
    spec = tiny_spec(corpus={"name": "mine", "path": str(mine), "utterances": None})
    check_corpora(tmp_path, spec)  # nothing is known of it yet
    keep_corpora(tmp_path, spec)
    check_corpora(tmp_path, spec)
    moved = mine.rename(tmp_path / "moved.jsonl")
    spec = tiny_spec(corpus={"name": "mine", "path": str(moved), "utterances": None})
    check_corpora(tmp_path, spec)
    moved.write_text(moved.read_text() + json.dumps(LINE | {"intent": "stop"}))
    with pytest.raises(UserError, match=r"^corpus = '.*moved.jsonl': its content has changed since .*; allowed: "):
        check_corpora(tmp_path, spec)
    kept = json.loads((tmp_path / CORPORA).read_text())
    assert set(kept) == {"corpus", "shadow.corpus", "model.embeddings.corpus"}
