"""A search ends by itself when its front has been flat, and its sampler and front keep to its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.parts import SearchSpec, UntilSpec
from sweeps.results.front import over_limits, pareto_front
from sweeps.results.recommendation import recommended
from sweeps.run.study import excess, sampler
from sweeps.run.until import flat_front
from tests.support import studies
from tests.support.studies import METRICS, result, sweep, trials
from trainables.records.job import EpochResult

SEARCH = SearchSpec(objectives=("ser", "mia_auc"), until=UntilSpec(hypervolume_flat=3))


def told(*figures: tuple[float, float], **more: float) -> list[FrozenTrial]:
    """Trials of one kept epoch each, with these SER and MIA AUC."""
    return [
        create_trial(
            state=TrialState.COMPLETE,
            values=[ser, auc],
            user_attrs={"points": [{"epoch": 1, "metrics": {"ser": ser, "mia_auc": auc, **more}}]},
        )
        for ser, auc in figures
    ]


def test_a_front_that_three_trials_have_not_moved_is_flat() -> None:
    moved = told((0.5, 0.7), (0.4, 0.8), (0.6, 0.6))
    assert flat_front(SEARCH, moved) is None, "three trials are not more than three"
    worse = told((0.9, 0.9), (0.8, 0.9), (0.9, 0.8))
    assert flat_front(SEARCH, moved + worse[:2]) is None
    assert flat_front(SEARCH, moved + worse) == (
        "the front has been flat for 3 trials (search.until), so the search ends"
    )
    assert flat_front(SEARCH, moved + worse[:2] + told((0.3, 0.55))) is None
    assert flat_front(SEARCH, moved + worse + told((0.3, 0.55))) is None
    assert flat_front(SEARCH.model_copy(update={"until": None}), moved + worse) is None


def test_failed_trials_do_not_count_and_neither_does_a_gain_below_one_per_cent() -> None:
    moved = told((0.5, 0.5), (0.1, 0.9))
    failed = [create_trial(state=TrialState.FAIL)] * 5
    assert flat_front(SEARCH, moved + failed) is None
    hardly = told((0.4999, 0.4999), (0.4998, 0.4998), (0.4997, 0.4997))
    assert flat_front(SEARCH, moved + failed + hardly) is not None


def test_equal_trials_are_flat_and_points_over_a_limit_are_not_counted() -> None:
    assert flat_front(SEARCH, told(*[(0.5, 0.5)] * 5)) is not None
    limited = SEARCH.model_copy(update={"limits": {"ser": 0.3}})
    assert flat_front(limited, told(*[(0.5, 0.5)] * 5)) is None, "nothing is within the limits yet"


def test_the_driver_starts_nothing_more_then_and_says_why(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.until={hypervolume_flat: 2}", "search.sampler=random")
    search = trials(made, recipe)
    for trial_id in "abc":
        search.ask(trial_id)
        search.tell(trial_id, result(), studies.Ledger(), [])
    assert search.ask("d") is None
    assert search.driver.flat is not None


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("search.until={hypervolume_flat: 0}", "search.until.hypervolume_flat"),
        ("search.until={}", "search.until.hypervolume_flat"),
        ("search.limits={ser: 0}", "search.limits.ser"),
        ("search.limits={ber: 1}", "search.limits"),
    ],
)
def test_what_is_no_end_and_no_limit_is_refused(setting: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_recipe("quickstart_paper", [setting])


def test_the_front_and_the_advice_keep_to_the_limits_if_anything_does(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.objectives=[ser, mia_auc]", "search.limits={epsilon: 9, ser: 0.45}")
    search = trials(made, recipe)
    for trial_id, ser, auc, epsilon in (("a", 0.2, 0.9, 50.0), ("b", 0.4, 0.6, 8.0), ("c", 0.5, 0.5, 8.0)):
        search.ask(trial_id)
        figures: dict[str, Any] = {"ser": ser, "mia_auc": auc, "epsilon": epsilon}
        outcome = result(**figures)
        kept = (EpochResult(3, METRICS | figures),)
        search.tell(trial_id, type(outcome)(outcome.metrics, outcome.ledger, {}, kept), studies.Ledger(), [])
    found = made.trials()
    assert [p.metrics["ser"] for p in pareto_front(found, recipe.search.objectives, recipe.search.limits)] == [0.4]
    assert len(pareto_front(found, recipe.search.objectives)) == 3
    assert len(pareto_front(found, recipe.search.objectives, {"ser": 0.1})) == 3, "nothing is within these"
    advised = recommended(made).point
    assert advised is not None
    assert advised.metrics["ser"] == 0.4
    assert over_limits({"ser": 0.5, "epsilon": 8.0}, {"ser": 0.45, "epsilon": 9.0, "mia_auc": 1.0}) == [
        "ser",
        "mia_auc",
    ]


@pytest.mark.parametrize("name", ["tpe", "nsga2", "gp"])
@pytest.mark.slow
def test_a_sampler_avoids_what_is_over_a_limit(name: str) -> None:
    """SER falls as x grows, and ε rises, to beyond its limit from x = 0.5 on."""
    asks = 100 if name == "nsga2" else 30  # it needs generations
    settings = {"sampler": name, "trials": 30, "objectives": ("ser", "mia_auc"), "limits": {"epsilon": 1.0}}
    search = SearchSpec.model_validate(settings)

    def asked(search: SearchSpec) -> list[float]:
        study = optuna.create_study(directions=["minimize"] * 2, sampler=sampler(search))
        for _ in range(asks):
            trial = study.ask()
            x = trial.suggest_float("x", 0.0, 1.0)
            for other in "abc":  # NSGA-II draws a setting anew with probability 1 / their number
                trial.suggest_float(other, 0.0, 1.0)
            trial.set_user_attr("metrics", {"ser": 1 - x, "mia_auc": 0.5, "epsilon": 2 * x})
            study.tell(trial, [1 - x, 0.5])
        assert study.trials[-1].constraints or not search.limits
        return [trial.params["x"] for trial in study.trials[asks // 2 :]]

    free = asked(search.model_copy(update={"limits": {}}))
    assert sum(x > 0.5 for x in asked(search)) < sum(x > 0.5 for x in free)


def test_excess_is_a_share_of_the_limit() -> None:
    trial = create_trial(values=[0.0], user_attrs={"metrics": {"valid_ser": 0.2, "ser": 0.9, "epsilon": 4.0}})
    assert excess(trial, {"ser": 0.1, "epsilon": 8.0}) == pytest.approx((1.0, -0.5))
    assert excess(trial, {"mia_auc": 0.5}) == (1e9,)
    assert excess(create_trial(state=TrialState.FAIL), {"ser": 0.1}) == (1.0,)
