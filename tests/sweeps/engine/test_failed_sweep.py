"""A sweep of which no trial came to an end has failed, whoever looks at it again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from rich.console import Console

from sweeps.commands.status import print_sweep
from sweeps.config.space import bound_combinations
from sweeps.config.target_epsilon import BudgetExceeded
from sweeps.engine.prepare import blamed_on
from sweeps.engine.progress import Progress
from sweeps.engine.study import COST, open_study
from sweeps.engine.trials import SweepFailed, run_trials
from tests.support import studies
from trainables.records.job import TrialError, TrialStopped


def test_a_budget_that_nothing_meets_is_told_by_the_cheapest(tmp_path: Path) -> None:
    sweep, recipe = studies.sweep(tmp_path, "search.trials=3", "epsilon_budget=1")
    sweep.update(wanted=3)
    study = open_study(sweep, recipe)
    for cost in (900.0, 12.0, 40.0):
        trial = study.ask()
        trial.set_user_attr("reason", f"epsilon {cost} is over the budget of 1")
        trial.set_user_attr(COST, cost)
        study.tell(trial, state=TrialState.FAIL)
    words = (
        "the cheapest of 3 would have an epsilon of 12, and epsilon_budget = 1; allowed: a larger one, or edp.epsilon"
    )
    unused: Any = None
    with pytest.raises(SweepFailed, match=words):
        run_trials(sweep, recipe, unused, unused, unused, unused, Progress(Console(file=io.StringIO())))


def test_a_training_without_privacy_that_fails_says_that_it_is_one_and_where_it_is_set() -> None:
    said = "^shadow model, which is trained without privacy by training.non_private: the training loss is nan$"
    with pytest.raises(TrialError, match=said), blamed_on("shadow model"):
        raise TrialError("the training loss is nan")
    with pytest.raises(TrialStopped, match=r"^stopped by Ctrl-C$"), blamed_on("SGD baseline"):
        raise TrialStopped("stopped by Ctrl-C")


def test_the_reason_of_a_failure_is_shown_and_the_same_refusal_once(tmp_path: Path) -> None:
    sweep, recipe = studies.sweep(tmp_path, "search.trials=2")
    sweep.update(wanted=2, state="failed", error="no trial of one came to an end: too large")
    study = open_study(sweep, recipe)
    for number in range(7):
        trial = study.ask()
        trial.set_user_attr("reason", "too large" if number != 1 else "too small")
        trial.set_user_attr("state", "refused")
        study.tell(trial, state=TrialState.FAIL)
    said = io.StringIO()
    print_sweep(sweep, Console(file=said, width=200))
    lines = said.getvalue().splitlines()
    assert "  failed: no trial of one came to an end: too large" in lines
    assert "  trials 0, 2, 3, 4, 5 and 1 more refused: too large" in lines
    assert "  trial 1 refused: too small" in lines


def test_a_resume_with_nothing_left_to_run_fails_as_the_run_did(tmp_path: Path) -> None:
    sweep, recipe = studies.sweep(tmp_path, "search.trials=2")
    sweep.update(wanted=2)
    study = open_study(sweep, recipe)
    for _ in range(2):
        trial = study.ask()
        trial.set_user_attr("reason", "out of memory")
        study.tell(trial, state=TrialState.FAIL)
    unused: Any = None
    with pytest.raises(SweepFailed, match="no trial of one came to an end: out of memory"):
        run_trials(sweep, recipe, unused, unused, unused, unused, Progress(Console(file=io.StringIO())))


def test_a_refused_or_interrupted_trial_is_tracked_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep, recipe), tracker = studies.sweep(tmp_path), studies.NoTracker()
    search = studies.ToldTrials(studies.driver(sweep, recipe, tracker=tracker, progress=Progress(Console())))
    params = next(bound_combinations(recipe.dimensions))
    search.driver._refuse(search.driver._study.ask(), BudgetExceeded(1.0, params, 2.0))
    assert search.ask("a") is not None
    search.driver.on_trial_result("a", {"message": [("left", "interrupted")]})
    search.driver.on_trial_complete("a")
    assert tracker.started == ["one-000 refused"]
    shown = capsys.readouterr().out
    assert "trial 0 refused" in shown
    assert "trial 1 interrupted" in shown
