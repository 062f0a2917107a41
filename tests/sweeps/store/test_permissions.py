"""What stands in a storage folder is its owner's, or its group's, whatever the umask."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from trainables.records.files import is_shared

MAKE = """
import os, sys
from pathlib import Path
os.umask(int(sys.argv[2], 8))
storage = Path(sys.argv[1])
from sweeps.config.loading import load_recipe
from sweeps.store.storage import default_tracking_uri, share_storage
from sweeps.store.sweep import Sweep
from sweeps.tracking.tracker import Tracker
from trainables.config import BERTSpec, CorpusSpec
from trainables.corpora import generate, split_corpus
from trainables.features.encoded_corpus import encode
from trainables.features.word_pieces import WordPieces
if sys.argv[3:]:
    share_storage(storage)
sweep = Sweep.new(storage, "one")
sweep.save_recipe(load_recipe("quickstart_paper", [])[1])
splits = split_corpus(generate("video", 200, seed=0), 0)
pieces = WordPieces.train(one.tokens for one in splits.train)
model = BERTSpec(pretrained=None, vocabulary=CorpusSpec(name="video"))
encode(splits, model, sweep.cache / "corpus", features=pieces)
tracker = Tracker(default_tracking_uri(storage), "x", storage / "mlflow-artifacts")
run = tracker.start("one", params={}, tags={}, note="")
tracker.artifact(run, sweep.folder / "recipe.yaml")
"""


def _made(storage: Path, *words: str) -> set[int]:
    """Make a sweep's folder in a process of its own, and return the permissions of all that was made."""
    ended = subprocess.run([sys.executable, "-c", MAKE, str(storage), *words], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    made = [storage, *storage.rglob("*")]
    assert {path.name for path in made} >= {"recipe.yaml", "words.json", "mlflow.db", "tokenizer.json"}
    assert sum(path.name == "recipe.yaml" for path in made) == 2
    return {stat.S_IMODE(path.stat().st_mode) for path in made}


@pytest.mark.stress
def test_only_the_owner_reads_a_storage_folder(tmp_path: Path) -> None:
    assert _made(tmp_path / "a b%c" / "runs", "000") == {0o700, 0o600}, "with the umask that takes nothing away"
    assert [path.name for path in tmp_path.iterdir()] == ["a b%c"]


@pytest.mark.slow
def test_a_group_shares_a_storage_folder_where_that_was_asked_for(long_story: None, tmp_path: Path) -> None:
    found = _made(tmp_path / "runs", "077", "shared")  # a umask that leaves the group nothing
    assert found == {stat.S_ISGID | 0o770, 0o660}
    assert is_shared(tmp_path / "runs" / "one")
