"""`edp-sweep schema-only`, and the row of the schema alone wherever a front is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import Command
from tests.support.encoder_folders import make_encoder
from tests.support.synthetic import sweep_of

SETTINGS = ["corpus.utterances=120", "shadow.corpus.utterances=60"]


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


@pytest.mark.slow
def test_it_measures_the_schema_alone(recipe: Path, tmp_path: Path, command: Command) -> None:
    words = ("schema-only", str(recipe), "--storage", str(tmp_path / "runs"))
    code, out, err = command(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["text"], found["metrics"]["epsilon"]) == (2500, 0)
    code, out, err = command(*words)
    assert code == 0, err
    ser = found["metrics"]["ser"]
    assert f"test SER {ser:.1%}" in out
    assert "ε = 0" in out


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["corpus.schema=null"], "corpus.schema = null: there are no samples in it to learn from; allowed: a schema"),
        (["corpus.schema=clinc150"], "corpus.schema = clinc150: there are no samples"),
        (["model.features=null"], "its model has no model.features"),
    ],
)
def test_a_mistake_is_one_line(recipe: Path, command: Command, settings: list[str], says: str) -> None:
    sets = [word for setting in settings for word in ("--set", setting)]
    code, _, err = command("schema-only", str(recipe), *sets)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_front_has_its_row(tmp_path: Path, command: Command) -> None:
    sweep = sweep_of(tmp_path / "runs", "made", 4)
    sweep.update(schema_only={"ser": 0.4321, "valid_ser": 0.4, "mia_auc": 0.5, "epsilon": 0.0, "epsilon_paper": 0.0})
    code, out, err = command("front", sweep.name, "--storage", str(tmp_path / "runs"))
    assert code == 0, err
    (row,) = [line for line in out.splitlines() if " schema " in line and "43.2" in line]
    assert "the schema alone" in row
    code, out, _ = command("front", sweep.name, "--storage", str(tmp_path / "runs"), "--json")
    assert json.loads(out)["schema_only"]["ser"] == 0.4321
