"""A recipe that is edited after the sweep began is refused, with the setting that was changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe, write_yaml
from sweeps.store.sweep import Sweep
from tests.support import studies

EDITS = [
    ("edp.delta=1e-3", "edp.delta"),
    ("training.epochs=7", "training.epochs"),
    ("space.z0.log_uniform=[0.1,1]", "space.z0"),
    ("space.training.learning_rate.log_uniform=[1e-4,1e-2]", "space.training.learning_rate"),
    ("corpus.utterances=77", "corpus.utterances"),
    ("search.seed=3", "search.seed"),
    ("epsilon_budget=5", "epsilon_budget"),
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


def test_a_record_without_digests_is_of_a_version_before_validation_chose_and_is_refused(begun: Sweep) -> None:
    record = begun.folder / "sweep.json"
    record.write_text(json.dumps({k: v for k, v in json.loads(record.read_text()).items() if k != "settings"}))
    with pytest.raises(UserError, match=r"sweep\.json is broken \(settings: Field required\)"):
        _ = Sweep.existing(begun.folder.parent, begun.name).state
