"""The figures of the schema alone, and its row in a front."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sweeps.config.loading import load_recipe
from sweeps.engine.prepare import encode_missing, has_text, measure_schema_only, read_missing
from sweeps.store.prepared import locate
from tests.conftest import Command
from tests.support.encoder_folders import make_encoder
from tests.support.synthetic import sweep_of


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schema-only")
    encoder = make_encoder("bert", folder / "encoder")
    public = {"name": "video", "utterances": 60}
    content = {
        "corpus": {"name": "health", "schema": "health", "utterances": 120},
        "model": {
            "kind": "bert",
            "pretrained": str(encoder),
            "vocabulary": public,
            "trainable": "heads",
            "head": {"slots": "bio_crf", "shared_types": True},
            "features": {"layers": "1+3", "public": [public]},
        },
        "shadow": {"corpus": {"name": "communication", "utterances": 60}},
        "training": {"method": "dpsgd", "batch_size": "full", "epochs": 2, "workers": 1, "optimizer": "momentum"},
        "edp": {"epsilon": 8, "delta": 1e-3, "alpha": "none", "decay": "none"},
        "space": {"C": {"choice": [0.5, 1.0]}},
        "search": {"trials": 2},
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.stress
@pytest.mark.parametrize("schema", ["health", None])
def test_the_schema_is_measured_where_it_has_text(schema: str | None, recipe: Path, tmp_path: Path) -> None:
    spec = load_recipe(str(recipe), [f"corpus.schema={schema or 'null'}"])[1].baseline()
    prepared = locate(spec, tmp_path)
    encode_missing(spec, prepared, read_missing(spec, prepared), lambda line: None)
    assert has_text(prepared) == (schema is not None)
    if schema is not None:
        found = measure_schema_only(spec, prepared)
        assert (found["epsilon"], found["delta"]) == (0, 1e-3)
        assert 0 < found["valid_ser"] < 2
        assert 0 < found["ser"] < 2


@pytest.mark.slow
def test_a_front_has_its_row(tmp_path: Path, command: Command) -> None:
    sweep = sweep_of(tmp_path / "runs", "made", 4)
    sweep.update(schema_only={"ser": 0.4321, "valid_ser": 0.4, "mia_auc": 0.5, "epsilon": 0.0, "epsilon_paper": 0.0})
    code, out, err = command("front", sweep.name, "--storage", str(tmp_path / "runs"))
    assert code == 0, err
    (row,) = [line for line in out.splitlines() if " schema " in line and "43.2" in line]
    assert "the schema alone" in row
    code, out, _ = command("front", sweep.name, "--storage", str(tmp_path / "runs"), "--json")
    assert json.loads(out)["schema_only"]["ser"] == 0.4321
