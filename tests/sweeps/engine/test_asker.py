"""A search never asks for the same configuration twice, whatever its sampler, and ends when its space is exhausted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.config.configurations import identity
from sweeps.config.recipe import Recipe
from sweeps.engine.study import Asker, open_study, requeue_interrupted
from sweeps.store.sweep import Sweep
from tests.support.studies import sweep, trials

CELLS = ("edp.z0=0.5", "edp.decay=none", "search.objectives=[ser]", "search.points_to_evaluate=[]")


def asked(made: Sweep, recipe: Recipe) -> list[tuple[int, dict[str, Any]]]:
    """Every configuration that is asked for until none is left, each told as complete with the same value."""
    study, found = open_study(made, recipe), []
    asker = Asker(study, recipe)
    while (one := asker.ask()) is not None:
        trial, params = one
        trial.set_user_attr("params", params)
        study.tell(trial, [0.5])
        found.append((trial.user_attrs.get("retry_of", trial.number), params))
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random", "nsga2", "gp"])
@pytest.mark.slow
def test_each_configuration_is_asked_for_once_under_every_sampler(tmp_path: Path, sampler: str) -> None:
    made, recipe = sweep(tmp_path, *CELLS, f"search.sampler={sampler}", "space.training.epochs.int=[1, 2]")
    found = asked(made, recipe)
    assert len({identity(recipe, params) for _, params in found}) == len(found) == 6 * 2


def test_the_first_trial_after_repeated_ones_has_the_number_of_the_first_of_them(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, *CELLS, "search.sampler=random", "space.C.choice=[0.5, 1.0, 2.0]")
    found = asked(made, recipe)
    assert [number for number, _ in found] == sorted(number for number, _ in found)
    study = open_study(made, recipe)
    repeated = [trial for trial in study.trials if trial.user_attrs.get("state") == "repeated"]
    assert repeated, "a random sampler repeats itself in a space of three"
    assert {record.number for record in made.trials()} == {number for number, _ in found}, "they are no trials"
    assert requeue_interrupted(study) == 3


def test_a_resumed_search_knows_what_has_run(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, *CELLS, "search.sampler=random", "space.C.choice=[0.5, 1.0, 2.0]")
    study = open_study(made, recipe)
    one = Asker(study, recipe).ask()
    assert one is not None
    one[0].set_user_attr("params", one[1])
    study.tell(one[0], [0.5])
    rest = asked(made, recipe)
    assert sorted([one[1]["C"], *(params["C"] for _, params in rest)]) == [0.5, 1.0, 2.0]


def test_the_driver_says_when_its_space_is_exhausted(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, *CELLS, "space.C.choice=[0.5, 1.0]")
    search = trials(made, recipe)
    assert search.ask("a") is not None
    assert search.ask("b") is not None
    assert search.ask("c") is None
    assert search.driver.exhausted
