"""Two sweeps with one seed and four trials at once, on Ray: the same configurations, and the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sweeps
from tests.conftest import TINY_RECIPE

SETTINGS = {
    "edp.reproducible_noise": 1,
    "search.objectives": ["ser", "mia_auc"],
    "search.concurrency": 4,
    "search.sampler_arguments": {"n_startup_trials": 2},
    "space.training.epochs.int": [1, 12],  # trials of unequal length
    "training.workers": 1,
    "resources.cpus_per_worker": 0.5,
}


@pytest.mark.slow
def test_two_sweeps_of_one_seed_are_the_same(ray_cluster: str, long_story: None, tmp_path: Path) -> None:
    recipe, ends = tmp_path / "tiny.yaml", list[int]()
    recipe.write_text(TINY_RECIPE)

    def run(name: str) -> list[tuple[dict[str, Any], list[float] | None]]:
        where: dict[str, Any] = {"storage": tmp_path, "callbacks": [lambda study, trial: ends.append(trial.number)]}
        made = sweeps.run(recipe, SETTINGS, trials=12, name=name, **where)
        return [(trial.params, trial.values) for trial in made.study.trials]

    first = run("first")
    assert len(first) == 12
    assert len(ends) == 12, "the callback hears of each"
    assert run("again") == first
