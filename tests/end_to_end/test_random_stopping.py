"""A secret number of trials: only the best is shown, tracked and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from sweeps.config.loading import load_recipe
from sweeps.config.pricing import epsilon_of_best
from sweeps.config.random_stopping import draw_number
from tests.conftest import TINY_RECIPE, Command

pytestmark = pytest.mark.usefixtures("kept_groups")

SETTINGS = ["search.sampler=random_stopping", "edp.epsilon=8", "search.objectives=[ser]", "search.trials=2"]


def test_only_the_best_trial_leaves_the_sweep(
    long_story: None, ray_cluster: str, command: Command, tmp_path: Path
) -> None:
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    code, out, err = command("run", str(recipe), "--name", "secret", "--storage", str(tmp_path), "--json", *words)
    assert code == 0, err
    found = json.loads(out)
    (best,) = found["trials"]
    assert found["front"] == [best["number"]]
    assert best["metrics"]["epsilon"] == pytest.approx(8, abs=1e-4)
    assert 8 < found["epsilon_of_sweep"] < 100
    client = MlflowClient(found["tracking_uri"])
    experiment = client.get_experiment_by_name("tiny")
    children = [
        run
        for run in client.search_runs([experiment.experiment_id])
        if run.data.tags.get("mlflow.parentRunId") == found["run_id"]
    ]
    assert [run.info.run_id for run in children] == [best["run_id"]]
    assert best["number"] == 0, "the number would say how many there were"
    assert len(list((tmp_path / "secret" / "trials").iterdir())) == 1
    assert "complete: SER" not in err, "a candidate was shown"
    code, out, _ = command("status", "secret", "--storage", str(tmp_path))
    assert "1 complete of a secret number" in out


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
