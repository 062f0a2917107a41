"""A setting that is added changes no key; a setting that is set changes those that depend on it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import all_keys
from trainables.config import BERTSpec, CanariesSpec, CLCSpec, HeadSpec, NonPrivateSpec, TrainingSpec
from trainables.config.keys import KEY_VERSION, cache_key, identity

WRITER = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "settings.py"))
NOW: dict[str, dict[str, Any]] = WRITER["defaults"]()


def with_a_new_setting(tmp_path: Path) -> dict[str, Any]:
    """Return what `tests.support.all_keys` prints where every spec has one setting more."""
    command = [sys.executable, "-m", "tests.support.all_keys", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


@pytest.mark.stress
def test_a_setting_that_is_added_to_every_spec_changes_no_key_until_it_is_set(tmp_path: Path) -> None:
    new = with_a_new_setting(tmp_path)
    assert set(new["added_to"]) >= set(NOW)
    assert new["keys"] == all_keys.all_keys(tmp_path)
    assert set(new["set_in"]) == set(all_keys.CHANGED_BY)
    for place, keys in new["set_in"].items():
        changed = {name for name, key in keys.items() if key != new["keys"][name]}
        assert changed == set(all_keys.CHANGED_BY[place]), place


def test_a_changed_default_comes_with_a_new_key_version() -> None:
    kept = json.loads(WRITER["DEFAULTS"].read_text())
    assert {spec: set(one) for spec, one in NOW.items()} == {
        spec: set(one) for spec, one in kept["defaults"].items()
    }, "settings were added or taken away: python docs/settings.py"
    assert kept["defaults"] == NOW, "raise KEY_VERSION in trainables/config/keys.py, and write it and these to the file"
    assert kept["version"] == KEY_VERSION


def test_the_kind_of_a_model_stays_in_its_identity() -> None:
    models = [
        {"kind": "clc", "embeddings": {"corpus": {"name": "x"}}, "layers": 3},
        {"kind": "bert", "vocabulary": {"name": "x"}, "layers": 3},
    ]
    clc, bert = (identity(spec.model_validate(one)) for spec, one in zip((CLCSpec, BERTSpec), models, strict=True))
    assert clc == {"kind": "clc", "embeddings": {"corpus": {"name": "x"}}, "layers": 3}
    assert bert == {"kind": "bert", "vocabulary": {"name": "x"}, "layers": 3}


def test_what_is_left_out_leaves_no_trace() -> None:
    assert identity(TrainingSpec(workers=2, seed=1), {"workers"}) == {"seed": 1}
    model = CLCSpec.model_validate({"embeddings": {"corpus": {"name": "x"}, "epochs": 3}, "head": {"bio": True}})
    kept = {"kind": "clc", "embeddings": {"corpus": {"name": "x"}}}
    assert identity(model, {"head.bio", "embeddings.epochs"}) == kept


def test_an_empty_spec_is_told_from_none() -> None:
    assert identity(TrainingSpec(non_private=NonPrivateSpec())) == {"non_private": {}}
    assert identity(TrainingSpec()) == {}


def test_a_key_is_of_all_its_parts() -> None:
    keys = [cache_key(*parts) for parts in ((), ("a",), ("a", None), (CanariesSpec(),), ([HeadSpec(bio=True)],))]
    assert len(set(keys)) == len(keys)
    assert cache_key(CanariesSpec()) == cache_key(CanariesSpec(count=0)) == cache_key({})
