"""Trials at one ε: the noise is solved for each shape and kind of noise, and known before they start."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest

from edp.accounting.epsilon import epsilon, epsilon_user
from edp.accounting.gaussian import gaussian_epsilon
from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.recipe import Recipe
from sweeps.config.space import ask, bound_combinations
from sweeps.config.target_epsilon import ConfigurationRefused, planned, resolve, schedule_of
from tests.support.tiny import spec
from trainables.config import TrialSpec

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


def test_a_batch_larger_than_the_corpus_is_refused_as_a_trial_with_the_reason() -> None:
    one = recipe("edp.epsilon=8", "training.method=dpsgd", "space.training.batch_size.choice=[64, 4096]")
    point = {"C": 1.0, "decay": "none", "tau": 0.0}
    assert resolve(one, point | {"training.batch_size": 64}, EXAMPLES).params["z0"] > 0
    with pytest.raises(ConfigurationRefused, match=r"4096: the corpus has 1350 utterances.*at most that many, or full"):
        resolve(one, point | {"training.batch_size": 4096}, EXAMPLES)


SEARCHED = ["edp.decay=none", "space.edp.noise_correlation.choice=[none, banded]"]


def test_it_is_searched_and_both_meet_a_target_at_the_same_noise() -> None:
    _, recipe = load_recipe("atis_clc", [*SEARCHED, "edp.epsilon=8"])
    settled = [
        resolve(recipe, {"C": 1.0, "edp.noise_correlation": kind, "decay": "none"}, 2_627)
        for kind in ("none", "banded")
    ]
    assert settled[0].params["z0"] == settled[1].params["z0"]
    trials = [one.spec for one in settled]
    assert [trial.edp.noise_correlation for trial in trials] == ["none", "banded"]
    ledgers = [planned(trial, 2_627) for trial in trials]
    assert epsilon(ledgers[0], 5e-4) == epsilon(ledgers[1], 5e-4) == pytest.approx(8, abs=1e-3)
    assert [ledger.entries[0].mechanism.band for ledger in ledgers] == [1, 16]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["edp.noise_correlation=banded"], "decay = linear; allowed: decay = none"),
        ([*SEARCHED, "edp.sampling=poisson"], "sampling = poisson; allowed: sampling = shuffle"),
        (["edp.noise_correlation=banded", "edp.clip=quantile"], "clip = quantile; allowed: clip = fixed or automatic"),
        (["edp.noise_correlation=correlated"], "edp.noise_correlation"),
    ],
)
def test_what_has_no_price_is_refused_in_one_line(settings: list[str], says: str) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("atis_clc", settings)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_trial_whose_band_is_longer_than_an_epoch_is_refused_before_it_starts() -> None:
    _, recipe = load_recipe("atis_clc", ["edp.decay=none", "edp.noise_correlation=banded", "edp.band=42"])
    params = {"C": 1.0, "z0": 0.5, "decay": "none"}
    assert resolve(recipe, params, 2_627).params["z0"] == 0.5
    with pytest.raises(ConfigurationRefused, match=r"edp\.band = 42 is more than the steps of an epoch, 41"):
        resolve(recipe, params, 41 * 64)


def group_by_user(batch_size: int | str, **edp: Any) -> TrialSpec:
    training = {"method": "dpsgd", "batch_size": batch_size, "epochs": 4}
    return spec(training=training, edp={"unit": "user", "z0": 2.0, "reproducible_noise": None, **edp})


@pytest.mark.parametrize("batch_size", [20, "full"])
def test_it_is_planned_for_users(batch_size: int | str) -> None:
    steps, at_once = (5, 20) if batch_size == 20 else (1, 100)
    plan = schedule_of(group_by_user(batch_size), 100)
    rate = at_once / 100
    assert plan == {"micro_batches": at_once, "steps_per_epoch": steps, "rate": rate, "single_example": False}
    ledger = planned(group_by_user(batch_size), 100)
    assert epsilon(ledger, 5e-4) == epsilon_user(ledger, 5e-4) == gaussian_epsilon(math.sqrt(4) / 2, 5e-4)


def test_more_users_a_step_than_there_are_is_refused_in_their_name() -> None:
    with pytest.raises(UserError, match=r"training\.batch_size = 20: the corpus has 19 users to train on"):
        schedule_of(group_by_user(20), 19)
