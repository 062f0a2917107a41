"""Sweeps and final models of one corpus have one account, and its budget ends what would pass it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from tests.conftest import TINY_RECIPE, Command

pytestmark = pytest.mark.usefixtures("kept_groups")


def test_a_sweep_and_the_model_that_it_chose_are_one_account(
    long_story: None, ray_cluster: str, tmp_path: Path, command: Command
) -> None:
    settings = yaml.safe_load(TINY_RECIPE) | {"edp": {"epsilon": 8, "decay": "none"}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    storage = ("--storage", str(tmp_path / "runs"))
    picked = str(tmp_path / "picked.yaml")

    def account() -> dict[str, Any]:
        code, out, err = command("account", "communication", *storage, "--json")
        assert code == 0, err
        (found,) = json.loads(out)["corpora"]
        return dict(found)

    def composed(count: int) -> Any:
        return pytest.approx(gaussian_epsilon(count**0.5 * gaussian_mu(8, 5e-4), 5e-4), rel=1e-3)

    code, out, err = command("run", str(tmp_path / "tiny.yaml"), "--name", "s", *storage, "--json")
    assert code == 0, err
    found = account()
    assert found["epsilon_of_everything"] == composed(2)
    assert found["epsilon_of_everything"] == pytest.approx(json.loads(out)["epsilon_of_sweep"])
    assert (found["epsilon_released"], found["without_privacy"]) == (0, ["s: baseline"])

    assert command("pick", "s", "0", "--output", picked, *storage)[0] == 0  # for all its epochs, and so its whole ε
    budget = ("--set", "corpus.budget={epsilon: 20, delta: 5e-4}")
    code, _, err = command("train", picked, *budget, *storage)
    assert code == 0, err
    found = account()
    assert found["epsilon_released"] == found["epsilon_of_everything"] == composed(3), "it was chosen by the sweep"

    before = sorted((tmp_path / "runs").iterdir())
    for words in (("train", picked), ("run", str(tmp_path / "tiny.yaml"))):
        code, _, err = command(*words, *budget, *storage)
        assert code == 2
        assert "corpus.budget = (ε 20, δ 0.0005): the account of corpus communication is ε = 16.7" in err
    assert sorted((tmp_path / "runs").iterdir()) == before

    shutil.rmtree(tmp_path / "runs" / "s")
    assert account() == found, "the journal has what the folder had"


def test_a_release_belongs_to_the_corpus_that_it_was_trained_on(
    long_story: None, ray_cluster: str, tmp_path: Path, command: Command
) -> None:
    private, proxy, public = ({"name": name, "utterances": 120} for name in ("video", "communication", "health"))
    recipe = yaml.safe_load(TINY_RECIPE) | {
        "corpus": private,
        "shadow": {"corpus": public, "epochs": 1},
        "edp": {"epsilon": 8, "decay": "none"},
        "search": {"plan": "proxy", "proxy": proxy, "trials": 1, "seed": 1},
    }
    (tmp_path / "proxy.yaml").write_text(yaml.safe_dump(recipe))
    storage = ("--storage", str(tmp_path / "runs"))
    code, _, err = command("run", str(tmp_path / "proxy.yaml"), "--name", "s", *storage)
    assert code == 0, err
    code, _, err = command("pick", "s", "--register", "voice", "--output", str(tmp_path / "picked.yaml"), *storage)
    assert code == 0, err
    code, out, err = command("account", *storage, "--json")
    assert code == 0, err
    by_corpus = {one["corpus"][0]: one for one in json.loads(out)["corpora"]}
    (trained,) = by_corpus["video"]["activities"]
    assert trained["released"]
    assert by_corpus["video"]["epsilon_released"] == pytest.approx(8, rel=1e-3)
    (chose,) = by_corpus["communication"]["activities"]
    assert "models:/voice (run " in str(trained["models"])
    assert chose["models"] == []


def test_a_search_that_began_at_points_of_another_counts_it_in_what_was_released(
    long_story: None, ray_cluster: str, tmp_path: Path, command: Command
) -> None:
    recipe = yaml.safe_load(TINY_RECIPE) | {"edp": {"epsilon": 8, "decay": "none"}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    storage, picked = ("--storage", str(tmp_path / "runs")), str(tmp_path / "picked.yaml")
    for words in (
        ("run", str(tmp_path / "tiny.yaml"), "--name", "first", "--trials", "1"),
        ("run", str(tmp_path / "tiny.yaml"), "--name", "second", "--from", "first", "--trials", "1"),
        ("pick", "second", "0", "--output", picked),
        ("train", picked),
    ):
        code, _, err = command(*words, *storage)
        assert code == 0, err
    code, out, err = command("account", "communication", *storage, "--json")
    assert code == 0, err
    (found,) = json.loads(out)["corpora"]
    three = gaussian_epsilon(3**0.5 * gaussian_mu(8, 5e-4), 5e-4)
    assert found["epsilon_of_everything"] == pytest.approx(three, rel=1e-3)
    assert found["epsilon_released"] == pytest.approx(three, rel=1e-3), "the first sweep chose too"


def test_one_person_in_two_corpora_is_one_person(
    long_story: None, ray_cluster: str, tmp_path: Path, command: Command
) -> None:
    recipe = yaml.safe_load(TINY_RECIPE)
    storage = ("--storage", str(tmp_path / "runs"))
    settings = {k: v for k, v in recipe.items() if k in ("model", "shadow")} | {
        "training": recipe["training"] | {"method": "dpsgd", "batch_size": "full", "epochs": 1},
        "edp": {"C": 1.0, "z0": 1.0, "unit": "user"},
    }
    for name, verb in (("phones", "call"), ("mails", "write")):
        lines = [
            {"tokens": [verb, f"{name}{i}"], "tags": ["O", "B-whom"], "intent": verb, "user": f"user{i % 20}"}
            for i in range(200)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        corpus = {"name": name, "path": str(tmp_path / f"{name}.jsonl")}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(settings | {"corpus": corpus}))
        code, _, err = command("train", str(tmp_path / f"{name}.yaml"), *storage)
        assert code == 0, err
    code, out, err = command("account", "phones", *storage, "--json")
    assert code == 0, err
    (found,) = json.loads(out)["corpora"]
    assert found["unit"] == "user"
    both = gaussian_epsilon(2**0.5, 5e-4)  # each training is one Gaussian mechanism with z = 1
    assert found["epsilon_of_everything"] == pytest.approx(both, rel=1e-3)
