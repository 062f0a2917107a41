"""A search never asks for the same configuration twice, whatever its sampler, and ends when its space is exhausted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sweeps.config.configurations import identity
from sweeps.config.recipe import Recipe
from sweeps.engine.study import Asker, open_study, requeue_interrupted
from sweeps.store.records import number_of
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


@pytest.mark.parametrize(
    "sampler", ["tpe", "random", *(pytest.param(name, marks=pytest.mark.stress) for name in ("nsga2", "gp"))]
)
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


def four_at_once(made: Sweep, recipe: Recipe, luck: int, lag: int | None, stop_after: int = 0) -> list[dict[str, Any]]:
    """Ask for 18 configurations, four at once, which end in an order by luck; by number.

    Args:
        stop_after: number of asked configurations after which the sweep dies and goes on.
    """
    study, chance, found, running = open_study(made, recipe), random.Random(luck), dict[int, Any](), []
    asker = Asker(study, recipe, lag)
    while running or len(found) < 18:
        while len(running) < 4 and len(found) < 18 and asker.ready:
            one = asker.ask()
            assert one is not None
            trial, params = one
            trial.set_user_attr("params", params)
            found[number_of(trial)] = params
            judges = asker.known_to(number_of(trial)) or set()
            assert not judges & {number_of(other) for other, _ in running}, "a trial that runs judges none"
            running.append((trial, params))
            if len(found) == stop_after:
                stop_after, running = 0, []
                study = open_study(made, recipe)
                requeue_interrupted(study)
                asker = Asker(study, recipe, lag)
        trial, params = running.pop(chance.randrange(len(running)))
        study.tell(trial, [params["z0"] / params["C"], params["C"]])
    return [params for _, params in sorted(found.items())]


SAMPLED = ("search.trials=18", "search.seed=3", "search.objectives=[ser, mia_auc]", "search.points_to_evaluate=[]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", ["tpe", "random", *(pytest.param(name, marks=pytest.mark.stress) for name in ("nsga2", "gp"))]
)
def test_with_a_lag_the_order_in_which_trials_end_changes_no_configuration(tmp_path: Path, sampler: str) -> None:
    def asked_for(place: str, luck: int, lag: int | None) -> list[dict[str, Any]]:
        return four_at_once(*sweep(tmp_path / place, *SAMPLED, f"search.sampler={sampler}"), luck, lag)

    first = asked_for("first", 1, 7)
    assert asked_for("again", 2, 7) == first
    assert (asked_for("without", 2, None) == asked_for("other", 1, None)) == (sampler == "random")


@pytest.mark.slow
def test_points_that_leave_a_setting_open_are_chosen_in_order_too(tmp_path: Path) -> None:
    points = "search.points_to_evaluate=[{C: 0.1}, {C: 0.25}, {C: 0.5}, {C: 1.0}, {C: 2.0}, {z0: 0.5}, {z0: 1.0}]"
    settings = (*SAMPLED[:3], points, "search.sampler_arguments={n_startup_trials: 2}")
    first, again = (four_at_once(*sweep(tmp_path / str(luck), *settings), luck, 3) for luck in (1, 2))
    assert first == again


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [2, 9, 14])
def test_a_search_that_was_stopped_goes_on_as_it_would_have(tmp_path: Path, stop_after: int) -> None:
    whole = four_at_once(*sweep(tmp_path / "whole", *SAMPLED), 1, 7)
    assert four_at_once(*sweep(tmp_path / "stopped", *SAMPLED), 2, 7, stop_after) == whole


def test_the_next_trial_waits_for_those_that_choose_it(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, *SAMPLED)
    study = open_study(made, recipe)
    asker = Asker(study, recipe, 2)
    first, second = asker.ask(), asker.ask()
    assert first is not None
    assert second is not None
    assert not asker.ready
    study.tell(second[0], [0.5, 0.5])
    assert not asker.ready, "the first one chooses it"
    study.tell(first[0], [0.5, 0.5])
    assert asker.ready
    assert (asker.known_to(0), asker.known_to()) == (set(), {0})
