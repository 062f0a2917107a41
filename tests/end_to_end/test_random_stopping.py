"""A secret number of trials: only the best is shown, tracked and kept."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import optuna
import pytest
from mlflow.tracking import MlflowClient

from sweeps.config.loading import load_recipe
from sweeps.config.pricing import epsilon_of_best
from sweeps.config.random_stopping import draw_number
from sweeps.config.recipe import Recipe
from sweeps.run.study import open_study
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE, Command
from tests.support.searching import holding

pytestmark = pytest.mark.usefixtures("kept_groups")

SETTINGS = ["search.sampler=random_stopping", "edp.epsilon=8", "search.objectives=[ser]", "search.trials=2"]


NUMBER = 741_707_417
"""The first candidate's number: one that is nowhere by chance."""


def test_only_the_best_trial_leaves_the_sweep_and_nothing_tells_its_number(
    long_story: None, ray_cluster: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def numbered(sweep: Sweep, recipe: Recipe) -> optuna.Study:
        study = open_study(sweep, recipe)
        for place in range(2):
            study.enqueue_trial({}, user_attrs={"retry_of": NUMBER + place})
        return study

    monkeypatch.setattr("sweeps.run.trials.open_study", numbered)
    monkeypatch.setattr("sweeps.commands.start.draw_number", lambda mean: 2)
    (recipes := tmp_path / "recipes").mkdir()
    (recipes / "tiny.yaml").write_text(TINY_RECIPE)
    runs = tmp_path / "runs"
    settings = [word for setting in ("edp.epsilon=8", "search.trials=2") for word in ("--set", setting)]
    where = ("--storage", str(runs))
    plan = ("run", str(recipes / "tiny.yaml"), "--plan", "random_stopping", "--name", "secret", *where, *settings)
    picked, report = str(tmp_path / "picked.yaml"), str(tmp_path / "report.html")
    said = []
    for words in (
        (*plan, "--json"),
        plan,  # prints what is there
        ("status", "secret", *where, "--json"),
        ("status", "secret", *where),
        ("pick", "secret", *where, "--output", picked, "--register", "assistant", "--json"),
        ("report", "secret", *where, "--output", report),
        ("resume", "secret", *where),
    ):
        code, out, err = command(*words)
        assert code == 0, f"{shlex.join(words)}: {err}"
        said.append((out, err))
    released = json.loads(said[0][0])
    assert released["output"] == str(runs / "secret" / "released")
    assert (released["chosen"]["number"], released["epsilon"]) == (0, pytest.approx(8, rel=1e-6))
    assert "complete: validation SER" not in said[0][1], "a candidate was shown"
    found = json.loads(said[2][0])
    (best,) = found["trials"]
    assert (best["number"], found["front"]) == (0, [0])
    assert best["metrics"]["epsilon"] < found["epsilon_of_sweep"]
    assert "1 complete of a secret number" in said[3][0]
    client = MlflowClient(found["tracking_uri"])
    experiment = client.get_experiment_by_name("tiny")
    children = [
        run
        for run in client.search_runs([experiment.experiment_id])
        if run.data.tags.get("mlflow.parentRunId") == found["run_id"]
    ]
    assert [run.info.run_id for run in children] == [best["run_id"]]
    for number in (NUMBER, NUMBER + 1):
        forms = [str(number), f"{number:,}", f"{number:x}"]
        assert holding(tmp_path, forms) == []
        assert not [form for form in forms for texts in said for text in texts if form in text]


def test_the_number_of_trials_is_geometric_with_the_stated_mean() -> None:
    drawn = [draw_number(5) for _ in range(4000)]
    assert min(drawn) == 1
    # The standard error of the mean is sqrt(20 / 4000) = 0.07.
    assert sum(drawn) / len(drawn) == pytest.approx(5, abs=0.36)
    assert drawn.count(1) / len(drawn) == pytest.approx(1 / 5, abs=0.032)


def test_its_cost_grows_slowly_with_the_expected_number() -> None:
    def cost(trials: int) -> float:
        _, recipe = load_recipe("quickstart_paper", [*SETTINGS[:3], f"search.trials={trials}"])
        return epsilon_of_best(recipe)

    assert 8 < cost(2) < cost(50) < 8 * 4
