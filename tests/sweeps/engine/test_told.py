"""What a sweep tells of its trials, and that one of which no trial came to an end has failed."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from optuna.trial import TrialState
from rich.console import Console

from sweeps.engine.progress import Progress
from sweeps.engine.study import COST, open_study
from sweeps.engine.trials import SweepFailed, run_trials
from tests.support import studies
from tests.support.terminal import RESULT

PARAMS = {"C": 1.0, "z0": 0.1, "decay": "none", "tau": 0.0}
WITHOUT_GUARANTEE = RESULT | {"epsilon": 3e12, "epsilon_paper": 7.5e11}


def test_a_result_says_its_epsilons_also_of_a_trial_that_was_stopped_early() -> None:
    written = io.StringIO()
    progress = Progress(Console(file=written, width=80))
    progress.trial(0, "stopped", PARAMS, WITHOUT_GUARANTEE, reason="after 2 epochs dominated")
    progress.trial(1, "failed", PARAMS, reason="a worker died")
    first, second = written.getvalue().splitlines()
    assert first.startswith(
        "trial 0 stopped: after 2 epochs dominated; validation SER 20.0%, MIA AUC 0.550, ε honest 3.00e+12 "
        "(no formal guarantee), ε paper 7.50e+11 (no formal guarantee), 40 s"
    )
    assert second == "trial 1 failed: a worker died"


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
    opened, unused = SimpleNamespace(prepared=None, progress=Progress(Console(file=io.StringIO()))), cast(Any, None)
    with pytest.raises(SweepFailed, match=words):
        run_trials(sweep, cast(Any, opened), unused, unused, unused)


def test_a_resume_with_nothing_left_to_run_fails_as_the_run_did(tmp_path: Path) -> None:
    sweep, recipe = studies.sweep(tmp_path, "search.trials=2")
    sweep.update(wanted=2)
    study = open_study(sweep, recipe)
    for _ in range(2):
        trial = study.ask()
        trial.set_user_attr("reason", "out of memory")
        study.tell(trial, state=TrialState.FAIL)
    opened, unused = SimpleNamespace(prepared=None, progress=Progress(Console(file=io.StringIO()))), cast(Any, None)
    with pytest.raises(SweepFailed, match="no trial of one came to an end: out of memory"):
        run_trials(sweep, cast(Any, opened), unused, unused, unused)
