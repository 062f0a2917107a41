"""A setting that is added changes no key; a setting that is set changes those that depend on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from tests.support import all_keys
from trainables.config import BERTSpec, CanariesSpec, CLCSpec, HeadSpec, NonPrivateSpec, TrainingSpec, TrialSpec
from trainables.config.keys import KEY_VERSION, cache_key, identity

DEFAULTS = Path(__file__).with_name("key_defaults.json")


def specs_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield every spec class that an annotation is made of, and all that those are made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from specs_in(field.annotation)
    for part in get_args(annotation):
        yield from specs_in(part)


SPECS = {spec.__name__: spec for spec in specs_in(TrialSpec)}


def with_a_new_setting(tmp_path: Path) -> dict[str, Any]:
    """Return what `tests.support.all_keys` prints where every spec has one setting more."""
    command = [sys.executable, "-m", "tests.support.all_keys", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


@pytest.mark.slow
def test_a_setting_that_is_added_to_every_spec_changes_no_key_until_it_is_set(tmp_path: Path) -> None:
    new = with_a_new_setting(tmp_path)
    assert set(new["added_to"]) >= set(SPECS)
    assert new["keys"] == all_keys.all_keys(tmp_path)
    assert set(new["set_in"]) == set(all_keys.CHANGED_BY)
    for place, keys in new["set_in"].items():
        changed = {name for name, key in keys.items() if key != new["keys"][name]}
        assert changed == set(all_keys.CHANGED_BY[place]), place


@pytest.mark.parametrize("name", SPECS)
def test_a_changed_default_comes_with_a_new_key_version(name: str) -> None:
    kept = json.loads(DEFAULTS.read_text())
    before = kept["defaults"].get(name, {})
    fields = SPECS[name].model_fields.items()
    now = {field: shown(one.default) for field, one in fields if one.default is not PydanticUndefined}
    changed = {field: value for field, value in now.items() if field in before and before[field] != value}
    assert not changed, f"raise KEY_VERSION in trainables/config/keys.py, and write it and these to {DEFAULTS}"
    assert now == before, f"settings of {name} were added or taken away: do the same in {DEFAULTS}"
    assert kept["version"] == KEY_VERSION


def shown(default: Any) -> Any:
    return default.model_dump(mode="json", exclude_defaults=True) if isinstance(default, BaseModel) else default


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
