"""Mechanisms beside each other at one ε: the sampler is asked for what fits together, and z0 is solved for each."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from edp.accounting.epsilon import epsilon
from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import ask, bound_combinations
from sweeps.config.target_epsilon import ConfigurationRefused, planned, resolve
from sweeps.engine.study import enqueue_initial_points

EXAMPLES = 1_350
BESIDE = (
    "edp.epsilon=8",
    "space.training.method.choice=[edp, dpsgd]",
    "space.training.micro_batches.choice=[8, 64]",
    "space.training.batch_size.choice=[32, 64, full]",
)
SHAPES = {
    ("edp", 32, 8),
    ("edp", 64, 8),
    ("edp", 64, 64),
    ("edp", "full", 8),
    ("edp", "full", 64),
    ("dpsgd", 32, None),
    ("dpsgd", 64, None),
    ("dpsgd", "full", None),
}


def recipe(*settings: str) -> Recipe:
    return load_recipe("quickstart_paper", list(settings))[1]


def shape(params: dict[str, Any]) -> tuple[Any, Any, Any]:
    return params["training.method"], params["training.batch_size"], params.get("training.micro_batches")


def test_every_shape_that_fits_is_a_corner_and_z0_is_solved_for_each() -> None:
    one = recipe(*BESIDE)
    found = [resolve(one, params, EXAMPLES) for params in bound_combinations(one.dimensions, one.shapes)]
    assert {shape(settled.params) for settled in found} == SHAPES
    clips = set()
    for settled in found:
        ledger = planned(settled.spec, EXAMPLES)
        assert 8 - 1e-4 <= epsilon(ledger, one.edp.delta) <= 8
        clips.add((ledger.entries[0].mechanism.N, ledger.entries[0].mechanism.single_example))
    assert clips == {(8, False), (64, False), (64, True), (32, True), (EXAMPLES, True)}
    z0 = {shape(one.params): one.spec.edp.z0 for one in found if one.spec.edp.decay == "none"}
    assert z0["edp", 64, 8] == pytest.approx(2 * z0["dpsgd", 64, None], rel=1e-3), "an example moves it half as far"


@pytest.mark.parametrize("kind", ["random", "tpe"])
@pytest.mark.slow
def test_the_sampler_is_asked_for_every_shape_that_fits_and_for_no_other(kind: str) -> None:
    one = recipe(*BESIDE)
    sampler = (
        optuna.samplers.RandomSampler(0)
        if kind == "random"
        else optuna.samplers.TPESampler(seed=0, group=True, multivariate=True)
    )
    study, found = optuna.create_study(sampler=sampler), set()
    for i in range(80):
        trial = study.ask()
        found.add(shape(ask(one.dimensions, trial, one.shapes)))
        study.tell(trial, float(i % 7))
    assert found <= SHAPES
    assert kind == "tpe" or found == SHAPES


def test_a_point_of_the_users_own_is_tried_under_whatever_name_it_is_asked_for() -> None:
    points = [
        "{training.method: edp, training.batch_size: 64, training.micro_batches: 64, C: 1}",
        "{training.batch_size: full}",
    ]
    one = recipe(*BESIDE, f"search.points_to_evaluate=[{', '.join(points)}]")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    enqueue_initial_points(study, one)
    first, second = (ask(one.dimensions, study.ask(), one.shapes) for _ in range(2))
    assert shape(first) == ("edp", 64, 64)
    assert first["C"] == 1
    assert second["training.batch_size"] == "full"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ("space.training.method.choice=[edp,sgd]", "space.training.method: sgd has nothing to search"),
        (
            "space.training.micro_batches.choice=[8,64] space.training.batch_size.choice=[8,32]",
            "space.training.micro_batches: 64 fits none of the others",
        ),
        (
            "space.training.micro_batches.choice=[8,4] space.training.batch_size.choice=[8,32]",
            "multiple of workers = 8",
        ),
        ("space.training.micro_batches.choice=[8,128]", "micro_batches = 128 is more than batch_size = 64"),
        ("training.batch_size=full edp.sampling=poisson", "training.batch_size = full leaves edp.sampling = poisson"),
        ("training.batch_size=whole", "training.batch_size: 'whole'; allowed: a number of utterances, or full"),
    ],
)
def test_what_fits_nothing_is_refused_in_one_line(settings: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        recipe(*settings.split(" "))
    assert "\n" not in str(refused.value)


def test_a_point_that_does_not_fit_together_is_refused() -> None:
    point = "{training.method: edp, training.batch_size: 32, training.micro_batches: 64}"
    with pytest.raises(UserError, match=r"points_to_evaluate\[0\].*do not fit together"):
        recipe(*BESIDE, f"search.points_to_evaluate=[{point}]")


def test_a_batch_larger_than_the_corpus_is_refused_as_a_trial_with_the_reason() -> None:
    one = recipe("edp.epsilon=8", "training.method=dpsgd", "space.training.batch_size.choice=[64, 4096]")
    point = {"C": 1.0, "decay": "none", "tau": 0.0}
    assert resolve(one, point | {"training.batch_size": 64}, EXAMPLES).params["z0"] > 0
    with pytest.raises(ConfigurationRefused, match=r"4096: the corpus has 1350 utterances.*at most that many, or full"):
        resolve(one, point | {"training.batch_size": 4096}, EXAMPLES)
