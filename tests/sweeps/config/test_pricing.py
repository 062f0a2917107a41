"""What choosing costs: each way is as cheap as its accountant says, and no more expensive than the target."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edp.accounting.gaussian import gaussian_delta
from edp.spec import UserError
from sweeps.commands.plan import runnable
from sweeps.config.loading import load_recipe
from sweeps.config.pricing import price

DELTA = 5e-4
POISSON = ("edp.sampling=poisson", "training.batch_size=100")


@pytest.mark.slow
def test_every_way_meets_the_target_and_the_cheapest_leaves_most_to_the_release() -> None:
    _, recipe = load_recipe("atis_private", ["search.trials=40"])
    plan = price(recipe, 4478, 8.0)
    assert [way.name for way in plan.ways] == ["proxy", "random_stopping", "all_trials"]
    assert plan.document()["cheapest"] == "proxy"
    for way in plan.ways:
        assert 7.99 < way.epsilon_total <= 8
        assert way.epsilon_of_release <= way.epsilon_total
    released = [way.epsilon_of_release for way in plan.ways]
    assert released == sorted(released, reverse=True)
    assert plan.ways[0].epsilon_of_choice == 0


@pytest.mark.slow
def test_forty_gaussian_trainings_together_are_one_gaussian_mechanism() -> None:
    _, recipe = load_recipe("atis_private", ["search.trials=40"])
    by_name = {way.name: way for way in price(recipe, 4478, 8.0).ways}
    mu = _mu_of(by_name["all_trials"].epsilon_of_release) * math.sqrt(40)
    assert float(gaussian_delta(by_name["all_trials"].epsilon_total, np.array([mu]))[0]) == pytest.approx(
        DELTA, rel=0.01
    )


def _mu_of(epsilon: float) -> float:
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gaussian_delta(epsilon, np.array([middle]))[0]) < DELTA else (low, middle)
    return low


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        (["search.proxy=null"], {"random_stopping", "all_trials"}),
        (["edp.sampling=poisson", "training.batch_size=1000"], {"proxy", "all_trials"}),
    ],
)
def test_a_way_that_is_not_there_is_not_priced(changes: list[str], ways: set[str]) -> None:
    _, recipe = load_recipe("atis_private", [*changes, "search.trials=3"])
    assert {way.name for way in price(recipe, 4478, 8.0).ways} == ways


@pytest.mark.parametrize("target", [0.0, -1.0, math.inf, math.nan])
def test_a_target_that_cannot_be_is_refused(target: float) -> None:
    _, recipe = load_recipe("atis_private", [])
    with pytest.raises(UserError, match="epsilon = "):
        price(recipe, 4478, target)


@pytest.mark.slow
def test_a_way_that_no_noise_brings_to_the_target_is_left_out(tmp_path: Path) -> None:
    settings = ["edp.alpha=private", "edp.epsilon=1", "search.trials=40"]
    _, recipe = load_recipe("atis_private", settings)
    plan = price(recipe, 2627, 1.0)
    assert plan.out_of_reach == ("all_trials",)
    assert {way.name for way in plan.ways} == {"proxy", "random_stopping"}
    _, recipe = load_recipe(
        "atis_private", [*settings, "search.proxy=null", "edp.sampling=poisson", "training.batch_size=100"]
    )
    with pytest.raises(UserError, match="out of reach"):
        price(recipe, 2627, 1.0)


@pytest.mark.slow
def test_a_way_whose_release_costs_more_than_its_noise_alone_is_out_of_reach() -> None:
    _, recipe = load_recipe("atis_private", ["edp.alpha=private", "edp.epsilon=0.05"])
    with pytest.raises(UserError, match="out of reach"):  # the layer scales, estimated with a noise of their own
        price(recipe, 4478, 0.05)


@pytest.mark.slow
def test_a_way_that_the_recipes_settings_forbid_does_not_run() -> None:
    settings = ["search.trials=3", "search.proxy=null", "search.points_to_evaluate=[{C: 0.5}]"]
    _, recipe = load_recipe("atis_private", settings)
    runs, refused = runnable(recipe, price(recipe, 2627, 8.0))
    assert list(runs) == ["all_trials"]
    assert "trials of random_stopping are independent draws" in refused["random_stopping"]
