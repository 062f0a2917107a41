"""The configurations of a space: twins are one, and a finite space is listed whole."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from sweeps.config.configurations import all_configurations, identity
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import Dimension, ask

FIXED = ("edp.z0=0.5", "edp.C=1", "edp.decay=none", "search.points_to_evaluate=[]")


def recipe(*settings: str) -> Recipe:
    return load_recipe("quickstart_paper", list(settings))[1]


@pytest.mark.parametrize(
    ("given", "once"),
    [
        ([16, "16", 16.0], (16,)),
        ([1e-3, 0.001, "1e-3"], (0.001,)),
        ([1, True, 0, False], (1, True, 0, False)),
        (["none", "linear", "none"], ("none", "linear")),
        (["2+4", "2", 2, "2+4"], ("2+4", "2")),
    ],
)
def test_twins_of_a_choice_are_one(given: list[Any], once: tuple[Any, ...]) -> None:
    found = Dimension.model_validate({"choice": given}).choice
    assert found is not None
    assert [(type(one), one) for one in found] == [(type(one), one) for one in once]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((*FIXED, "space.training.batch_size.choice=[32, 64]"), 2),
        ((*FIXED, "space.training.batch_size.choice=[32, '32', 64]"), 2),
        ((*FIXED, "space.training.epochs.int=[2, 9]"), 8),
        (("edp.z0=0.5", "edp.C=1", "search.points_to_evaluate=[]"), 1 + 8 + 8),
        (("edp.z0=0.5", "edp.C=1", "edp.decay=linear"), 8),
        (("edp.epsilon=8", "edp.decay=none", "space.C.choice=[0.5, 1]"), 2),
        (("edp.decay=none", "space.epsilon.choice=[1, 3, 8]", "edp.C=1"), 3),
        (("edp.z0=0.5",), 6 * 17),
        ((), None),
        ((*FIXED, "space.training.learning_rate.uniform=[0.1, 0.2]"), None),
        ((*FIXED, "space.training.seed=null", "space.training.epochs.int=[1, 100000]"), None),
    ],
)
def test_a_finite_space_is_listed_whole(settings: tuple[str, ...], expected: int | None) -> None:
    found = all_configurations(recipe(*settings))
    assert (None if found is None else len(found)) == expected


def test_what_a_sampler_can_ask_for_is_what_is_listed() -> None:
    searched = recipe(
        "edp.epsilon=8",
        "edp.decay=none",
        "space.C.choice=[0.5, 1]",
        "space.training.method.choice=[edp, dpsgd]",
        "space.training.micro_batches.choice=[8, 64]",
        "space.training.batch_size.choice=[32, 64, full]",
    )
    found = all_configurations(searched)
    assert found is not None
    assert len(found) == 2 * 8
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    asked = {identity(searched, ask(searched.dimensions, study.ask(), searched.shapes)) for _ in range(300)}
    assert asked == set(found)


def test_a_setting_without_effect_makes_no_other_configuration() -> None:
    searched = recipe(
        *FIXED, "space.training.optimizer.choice=[sgd, momentum]", "space.training.momentum.choice=[0.5, 0.9]"
    )
    found = all_configurations(searched)
    assert found is not None
    assert len(found) == 3
    one, two = ({"training.optimizer": "sgd", "training.momentum": m} for m in (0.5, 0.9))
    assert identity(searched, one) == identity(searched, two)
    assert identity(searched, one | {"z0": 0.5, "tau": 0.0}) == identity(searched, one)
