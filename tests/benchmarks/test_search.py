"""The benchmark of the search runs the project's own searcher and stopper on a surrogate of the shape that it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edp.accounting.epsilon import epsilon
from edp.spec import EDPSpec
from sweeps.config.loading import load_recipe
from sweeps.config.target_epsilon import planned
from tests.benchmarks.search import EPOCHS, EXAMPLES, app, epsilons, run, true_curve
from tests.conftest import Command


def test_less_noise_learns_more_and_leaks_more() -> None:
    curves = [true_curve(EDPSpec(C=1.0, z0=z0))[-1] for z0 in (1e-4, 0.03, 0.5)]
    assert curves == sorted(curves, key=lambda point: point[0])
    assert [auc for _, auc in curves] == sorted((auc for _, auc in curves), reverse=True)


@pytest.mark.parametrize(
    "params",
    [
        {"C": 1.0, "z0": 0.008, "decay": "linear", "tau": 0.02},
        {"C": 0.5, "z0": 0.9, "decay": "none", "tau": 0.0},
        {"C": 5.0, "z0": 1e-6, "decay": "exponential", "tau": 0.5},
    ],
)
def test_the_table_of_epsilon_is_the_accountants(params: dict[str, object]) -> None:
    spec = load_recipe("atis_clc", [f"training.epochs={EPOCHS}"])[1].trial(params)
    ledger = planned(spec, EXAMPLES)
    for epoch in (1, 7, EPOCHS):
        assert epsilons(spec.edp)[epoch - 1] == pytest.approx(epsilon(ledger.until(epoch), spec.edp.delta), rel=1e-3)


def test_a_seed_gives_the_same_history_and_never_less_volume_as_it_goes() -> None:
    recipe = load_recipe("atis_clc", ["search.trials=4", f"training.epochs={EPOCHS}"])[1]
    first, second = run(recipe, 8_000.0), run(recipe, 8_000.0)
    assert first == second
    volumes = [volume for _, volume in first]
    assert volumes == sorted(volumes)
    assert 0 < volumes[-1] < 1


@pytest.mark.slow
def test_the_command_writes_and_prints_its_table(command: Command, tmp_path: Path) -> None:
    words = ["--seeds", "1", "--trials", "2", "--processes", "1", "--output", str(tmp_path), "--json"]
    code, out, err = command(*words, commands=app)
    assert code == 0, err
    found = json.loads(out)
    assert found == json.loads((tmp_path / "search.json").read_text())
    assert len(found["rows"]) == 6
    assert "| TPE, early stopping |" in (tmp_path / "search.md").read_text()
