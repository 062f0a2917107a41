"""The benchmark of samplers gives each recorded training once, whatever is asked for, however many at once."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from tests.benchmarks.samplers import Recording, recording, search
from tests.support.synthetic import sweep_of


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return recording(sweep_of(tmp_path_factory.mktemp("runs"), "made", 24, tracked=False))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width"), [("tpe", 1), ("tpe", 8), ("nsga2", 4), ("random", 1)])
def test_each_training_is_given_once(known: Recording, kind: str, width: int) -> None:
    ended, _ = search(known, kind, 12, 0, width)
    assert len(set(ended)) == 12
    every, _ = search(known, kind, 100, 0, width)
    assert sorted(every) == list(range(len(known.params))), "there are no more"


@pytest.mark.slow
def test_a_search_that_begins_at_the_best_training_has_it_first(known: Recording, tmp_path: Path) -> None:
    best = known.sers.index(min(known.sers))
    point = {name: value for name, value in known.params[best].items() if name in known.recipe.dimensions}
    ended, _ = search(known, "tpe", 3, 0, first=[point])
    assert ended[0] == best
    assert known.nearest(known.params[best], set(range(len(known.params)))) == best
