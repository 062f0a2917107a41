"""The sampler, the front and the advice keep to the limits of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.config.parts import SearchSpec
from sweeps.engine.study import excess, sampler
from sweeps.results.front import over_limits, pareto_front
from sweeps.results.snapshot import Snapshot
from tests.support import studies
from tests.support.studies import METRICS, result, sweep, trials
from trainables.records.job import EpochResult


@pytest.mark.parametrize(
    ("setting", "says"), [("search.limits={ser: 0}", "search.limits.ser"), ("search.limits={ber: 1}", "search.limits")]
)
def test_what_is_no_limit_is_refused(setting: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_recipe("quickstart_paper", [setting])


@pytest.mark.slow
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
    advised = Snapshot(made).recommended().point
    assert advised is not None
    assert advised.metrics["ser"] == 0.4
    assert over_limits({"ser": 0.5, "epsilon": 8.0}, {"ser": 0.45, "epsilon": 9.0, "mia_auc": 1.0}) == [
        "ser",
        "mia_auc",
    ]


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
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
