"""MLflow is a mirror: what it has lost of a sweep, `resume` writes again from the study and the trials' folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from sweeps.engine.jobs.search import resume_sweep
from sweeps.engine.progress import Progress
from sweeps.store.sweep import Sweep
from tests.support.synthetic import sweep_of

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Mirrored:
    """What MLflow has of a run."""

    about: tuple[Any, ...]
    """Status, tags, parameters, models, artifacts."""
    history: dict[tuple[str, int], float]
    """Metrics by name and step."""

    def has(self, other: Mirrored) -> bool:
        """Return True if it has all of `other`. It may have more validation metrics: synthetic epochs report few."""
        return self.about == other.about and self.history.items() >= other.history.items()


def mirrored(sweep: Sweep) -> dict[str, Mirrored]:
    """Return what MLflow has of each run, by its name."""
    client = MlflowClient(sweep.record.tracking_uri)
    (experiment,) = [one.experiment_id for one in client.search_experiments(filter_string="name != 'Default'")]
    found: dict[str, Mirrored] = {}
    for run in client.search_runs([experiment]):
        tags = {key: value for key, value in run.data.tags.items() if key in ("state", "pareto", "reason", "privacy")}
        about = f"source_run_id = '{run.info.run_id}'"
        models = sorted(one.name for one in client.search_logged_models([experiment], about))
        files = sorted(one.path for one in client.list_artifacts(run.info.run_id))
        history = [one for key in run.data.metrics for one in client.get_metric_history(run.info.run_id, key)]
        assert run.info.run_name not in found, "each once"
        by_step = {(one.key, one.step): one.value for one in history}
        assert len(by_step) == len(history) or run.data.tags["role"] == "sweep", "each step once"
        found[run.info.run_name] = Mirrored((run.info.status, tags, run.data.params, models, files), by_step)
    return found


def resume(sweep: Sweep) -> None:
    resume_sweep(sweep, Progress(Console(quiet=True)))


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return sweep_of(tmp_path / "runs", "one", 4, "search.sampler=random", "epsilon_budget=1e5")


def test_a_store_that_is_gone_is_written_again(sweep: Sweep, tmp_path: Path) -> None:
    before, trials = mirrored(sweep), sweep.trials()
    assert {trial.state for trial in trials} == {"complete", "refused"}
    # Elsewhere, because MLflow keeps the stores open that a process has used.
    storage = shutil.copytree(sweep.folder.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("mlflow.db"))
    sweep = Sweep.existing(storage, "one")
    resume(sweep)
    after = mirrored(sweep)
    own = after.pop("one")
    assert own.about[0] == "FINISHED"
    assert own.history.items() >= before.pop("one").history.items()
    assert "recipe.yaml" in own.about[-1]
    assert [name for name in before if not after.pop(name).has(before[name])] == []
    assert not after
    assert all(trial.run_id not in {one.run_id for one in trials} for trial in sweep.trials())
    client = MlflowClient(sweep.record.tracking_uri)
    for trial in sweep.trials():
        assert client.get_run(trial.run_id).data.params["trial"] == str(trial.number)
    now = sweep.record
    resume(sweep)
    assert sweep.record == now, "nothing is left to write"


@pytest.mark.parametrize("lose", ["delete_run", "end_early", "reopen"])
def test_a_run_that_is_missing_or_unfinished_is_written_again_and_no_other_is_touched(lose: str, sweep: Sweep) -> None:
    client, record = MlflowClient(sweep.record.tracking_uri), sweep.record
    resume(sweep)
    before, trials = mirrored(sweep), {trial.state: trial for trial in sweep.trials()}
    losses: dict[str, Callable[[str], object]] = {
        "delete_run": client.delete_run,
        "end_early": lambda run: client.set_terminated(run, "KILLED"),
        "reopen": lambda run: client.update_run(run, status="RUNNING"),
    }
    for state in ("complete", "refused"):
        losses[lose](str(trials[state].run_id))
    resume(sweep)
    after = mirrored(sweep)
    assert after.keys() == before.keys()
    assert [name for name in before if not after[name].has(before[name])] == []
    kept = {trial.number: trial.run_id for trial in sweep.trials()}
    changed = {trial.number for trial in trials.values() if kept[trial.number] != trial.run_id}
    assert changed == ({trial.number for trial in trials.values()} if lose == "delete_run" else set())
    assert sweep.record.run_id == record.run_id


def test_a_second_run_of_a_trial_whose_creation_was_answered_too_late_is_no_trial(sweep: Sweep) -> None:
    resume(sweep)
    before, client = mirrored(sweep), MlflowClient(sweep.record.tracking_uri)
    late = client.get_run(sweep.trials()[0].run_id or "")
    tags = {key: late.data.tags[key] for key in ("role", "mlflow.parentRunId")}
    client.create_run(late.info.experiment_id, run_name=late.info.run_name, tags=tags)
    sweep.update(end_due=True)
    resume(sweep)
    assert mirrored(sweep) == before
