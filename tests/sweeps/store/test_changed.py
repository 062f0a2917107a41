"""A recipe that is edited, or a corpus whose files change, after the sweep began is refused by its setting."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe, write_yaml
from sweeps.store.sweep import Sweep
from sweeps.store.unchanged import CORPORA, check_corpora, keep_corpora
from tests.support import studies
from tests.support.tiny import spec as tiny_spec

EDITS = [
    ("edp.delta=1e-3", "edp.delta"),
    ("space.z0.log_uniform=[0.1,1]", "space.z0"),
    ("space.training.learning_rate.log_uniform=[1e-4,1e-2]", "space.training.learning_rate"),
    ("corpus.utterances=77", "corpus.utterances"),
]


@pytest.fixture
def begun(tmp_path: Path) -> Sweep:
    return studies.sweep(tmp_path)[0]


@pytest.mark.parametrize(("edit", "field"), EDITS)
def test_an_edited_setting_is_named(edit: str, field: str, begun: Sweep) -> None:
    path = begun.folder / "recipe.yaml"
    write_yaml(load_recipe(str(path), [edit])[1], path)
    says = re.escape(f"{path}: {field} changed since the sweep began; allowed: the recipe as it was")
    with pytest.raises(UserError, match=says):
        Sweep.existing(begun.folder.parent, begun.name).trials()


@pytest.mark.parametrize(
    "edit", ["description=mine", "training.device=cpu", "resources.group=warm", "budget.gpu_hours=3"]
)
def test_what_changes_nothing_of_trials_may_change(edit: str, begun: Sweep) -> None:
    path = begun.folder / "recipe.yaml"
    before = path.read_text()
    write_yaml(load_recipe(str(path), [edit])[1], path)
    assert path.read_text() != before
    assert Sweep.existing(begun.folder.parent, begun.name).trials() == begun.trials()


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
