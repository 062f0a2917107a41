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
    found = account()
    assert found["uncounted"] == ["s: ledger gone: not counted"]
    assert found["epsilon_of_everything"] == composed(1)
