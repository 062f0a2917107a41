"""A sweep of which no trial came to an end has failed, whoever looks at it again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from rich.console import Console

from sweeps.execution.trials import SweepFailed, run_trials
from sweeps.progress.live_table import Progress
from sweeps.search.study import open_study
from tests.support import studies


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
