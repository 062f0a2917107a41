"""A sweep goes on in a store that has moved, and in no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.console import Console

from edp.spec import UserError
from sweeps.engine.jobs.search import resume_sweep
from sweeps.engine.progress import Progress
from tests.support.synthetic import sweep_of


@pytest.mark.slow
def test_the_store_that_holds_the_run_is_taken_and_another_one_of_the_same_recipe_is_not(tmp_path: Path) -> None:
    sweep, other = sweep_of(tmp_path / "runs", "mine", 1), sweep_of(tmp_path / "others", "other", 1)
    progress = Progress(Console(quiet=True))
    before = sweep.record
    with pytest.raises(UserError, match=f"holds no run {before.run_id}; allowed: the store that holds the runs"):
        resume_sweep(sweep, progress, other.record.tracking_uri)
    with pytest.raises(UserError, match="is not there; allowed: the store that holds the runs"):
        resume_sweep(sweep, progress, f"sqlite:///{tmp_path}/nowhere/x.db")
    assert sweep.record == before
    assert not (tmp_path / "nowhere").exists()
    moved = f"sqlite:///{shutil.copy(tmp_path / 'runs' / 'mlflow.db', tmp_path / 'moved.db')}"
    resume_sweep(sweep, progress, moved)
    assert sweep.record == before.model_copy(update={"tracking_uri": moved})
