"""A search starts with the recipe's points or the paper's guesses, each tried once, all of them in the space."""

from __future__ import annotations

import optuna
import pytest

from edp.spec import UserError
from sweeps.config.initial_points import fitted
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import ask
from sweeps.engine.study import enqueue_initial_points, sampler


def recipe(*settings: str, name: str = "quickstart_paper") -> Recipe:
    return load_recipe(name, list(settings))[1]


def test_the_papers_guesses_and_a_safe_point_come_first_and_only_once() -> None:
    one = recipe()
    study = optuna.create_study(directions=["minimize"] * 3, sampler=sampler(one.search))
    enqueue_initial_points(study, one)
    enqueue_initial_points(study, one)
    found = [ask(one.dimensions, study.ask()) for _ in range(4)]
    assert found[:3] == [
        {"C": 1.0, "z0": 0.008, "decay": "linear", "tau": 0.02},
        {"C": 1.0, "z0": 0.03, "decay": "none", "tau": 0.0},
        {"C": 0.1, "z0": 1.0, "decay": "none", "tau": 0.0},
    ]
    assert found[3] not in found[:3]
    enqueue_initial_points(study, one)
    assert not [t for t in study.trials if t.state == optuna.trial.TrialState.WAITING]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["edp.decay=none"], [{"C": 1.0, "z0": 0.008}, {"C": 1.0, "z0": 0.03}, {"C": 0.1, "z0": 1.0}]),
        (["edp.epsilon=8", "edp.decay=none"], [{"C": 1.0}, {"C": 0.1}]),
        (
            ["space.C.choice=[0.2, 3]", "space.z0.log_uniform=[0.1, 0.5]", "space.decay.choice=[none, exponential]"],
            [{"C": 3, "z0": 0.1, "decay": "none"}, {"C": 0.2, "z0": 0.5, "decay": "none"}],
        ),
        (["search.trials=2"], [{"C": 1.0, "z0": 0.008, "decay": "linear", "tau_linear": 0.02}]),
        (["search.points_to_evaluate=[]"], []),
        (["edp.C=1", "edp.z0=1", "edp.decay=none", "space.training.batch_size.choice=[64, 128]"], []),
    ],
)
def test_a_guess_moves_to_the_nearest_point_of_the_space_or_is_left_out(
    settings: list[str], expected: list[dict[str, object]]
) -> None:
    assert recipe(*settings).initial_points() == expected


def test_of_what_else_is_searched_a_guess_takes_what_the_recipe_says_where_that_is_in_the_space() -> None:
    own = {"training.learning_rate": 45, "training.epochs": 80, "model.features.layers": "2+4+6"}
    private = recipe(name="atis_private").initial_points()
    assert private == [{"C": c, **own, "model.features.whiten": 1.0} for c in (1.0, 0.25)]
    elsewhere = recipe("training.learning_rate=90", "model.features.whiten=0.7", name="atis_private").initial_points()
    assert elsewhere[0] == {"C": 1.0, "training.epochs": 80, "model.features.layers": "2+4+6"}


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("{C: 3}", r"points_to_evaluate\[0\].C = 3 is not in the space; allowed: 0.1, 0.25, 0.5, 1.0, 2.0, 5.0"),
        ("{z0: 2}", r"points_to_evaluate\[0\].z0 = 2 is not in the space; allowed: 1e-06 to 1.0"),
        (
            "{decay: none, tau: 0.02}",
            r"points_to_evaluate\[0\].tau = 0.02: it belongs to a decay; allowed: together with decay = linear",
        ),
        ("{training.epochs: 3}", r"points_to_evaluate\[0\].training.epochs = 3 is not searched; allowed: C, z0"),
    ],
)
def test_a_point_outside_the_space_is_refused(point: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        recipe(f"search.points_to_evaluate=[{point}]")


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ({"C": 0.5, "z0": 0.5, "decay": "linear", "tau": 0.02}, {"C": 0.5, "z0": 0.5, "decay": "linear", "tau": 0.02}),
        ({"C": 0.5, "z0": 0.5, "decay": "none", "tau": 0.0}, {"C": 0.5, "z0": 0.5, "decay": "none"}),
        ({"C": 400.0, "z0": 1e-9, "decay": "none"}, {"C": 1.0, "z0": 0.008, "decay": "none"}),
        ({"C": 0.5, "z0": 0, "decay": "none"}, {"C": 0.5, "z0": 0.008, "decay": "none"}),
        ({"C": 0.5, "decay": "none", "training.epochs": 7, "solved": 3.0}, {"C": 0.5, "decay": "none"}),
    ],
)
def test_a_point_of_another_sweep_is_moved_into_the_space(point: dict, expected: dict) -> None:
    one = recipe("space.C.uniform=[0.1, 1.0]", "space.z0={log_uniform: [0.008, 1.0]}")
    assert fitted([point, point], one.dimensions, one.shapes, 5) == [expected]


def test_a_point_that_has_a_word_of_another_space_is_left_out_and_the_best_stay() -> None:
    one = recipe("space.C.uniform=[0.1, 1.0]", "space.decay.choice=[none]", "space.tau=null")
    given = [{"C": c, "z0": 0.5, "decay": decay} for c in (0.2, 0.4, 0.8) for decay in ("linear", "none")]
    found = fitted(given, one.dimensions, one.shapes, 2)
    assert [(point["C"], point["decay"]) for point in found] == [(0.2, "none"), (0.4, "none")]
