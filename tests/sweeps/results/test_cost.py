"""What a sweep costs is counted over all that ran, priced where there is a price, and bounded by the budget."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.commands.status import sweep_document as document
from sweeps.execution.trial_life import TrialLife
from sweeps.progress.live_table import Progress
from sweeps.recipes.loading import load_recipe
from sweeps.recipes.recipe import Recipe
from sweeps.results.cost import cost_text, over_budget, sweep_cost, trial_cost
from sweeps.search.study import open_study
from sweeps.search.study_trials import StudyTrials
from sweeps.search.target_epsilon import settle
from sweeps.state.sweep import Sweep
from tests.support.studies import METRICS, result, sweep, trials

HOUR = 3600.0


def ran(tmp_path: Path, *settings: str) -> tuple[StudyTrials, list[str]]:
    """A sweep of a complete trial of one GPU-hour and a failed one of half of that."""
    made, recipe = sweep(tmp_path, "search.sampler=random", *settings)
    search = trials(made, recipe)
    for trial_id in "ab":
        search.ask(trial_id)
    search.tell("a", result(gpu_seconds=HOUR, worker_seconds=HOUR), Ledger(), [])
    search.tell("b", "died", None, [{"gpu_seconds": 9.0, "worker_seconds": 9.0}, _costs(HOUR / 2)])
    made.update(baseline=METRICS | _costs(HOUR / 4))
    why = over_budget(sweep_cost(made.trials(), made.record.baseline, recipe), recipe)
    return search, [why] if why else []


@pytest.mark.slow
def test_a_driver_counts_what_it_hears_of_and_reads_the_study_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random", "budget.gpu_hours=2")
    first = trials(made, recipe)
    first.ask("before")
    first.tell("before", result(**_costs(HOUR)), Ledger(), [])
    made.update(baseline=METRICS | _costs(HOUR / 4))
    store: Any = None  # no trial is said to have started, so none has a run
    life = TrialLife(made, recipe, open_study(made, recipe), 1_350, store, Progress(Console(quiet=True)), None)
    for name in ("records", "told", "late_runs"):
        monkeypatch.setattr(Sweep, name, None)  # nothing that reads them works from here on
    asked = life.ask("runs")
    assert asked is not None
    runs, reported = SimpleNamespace(trial_id="runs"), {"valid_ser": 0.5}
    life.on_trial_result(0, [], runs, {"epoch": 1, "epoch_metrics": reported | _costs(HOUR / 8)})
    assert life.ask("more") is not None, "1.375 of 2 hours"
    life.on_trial_result(0, [], runs, {"epoch": 2, "epoch_metrics": reported | _costs(HOUR)})
    assert life.ask("no more") is None, "2.25 of 2 hours, of which one trial's are not told to the study yet"
    life.on_trial_result(0, [], runs, {"outcome": result(**_costs(HOUR * 1.5), trial_seconds=9.0)})
    life.on_trial_complete(0, [], runs)
    monkeypatch.undo()
    assert life.trials.closed == (
        "budget.gpu_hours = 2 is spent (2.25): no more trials are started; "
        "another sweep may have --set budget.gpu_hours=MORE"
    )
    assert life._spent.seconds == sweep_cost(made.trials(), made.record.baseline, recipe) == _costs(2.75 * HOUR)


def _costs(seconds: float) -> dict[str, float]:
    return {"gpu_seconds": seconds, "worker_seconds": seconds}


@pytest.mark.slow
def test_failed_trials_and_the_baseline_count_too(tmp_path: Path) -> None:
    ran(tmp_path)
    made, recipe = _again(tmp_path)
    assert [trial_cost(t, recipe)["gpu_seconds"] for t in made.trials()] == [HOUR, HOUR / 2]
    assert sweep_cost(made.trials(), made.record.baseline, recipe) == _costs(1.75 * HOUR)


def _again(tmp_path: Path) -> tuple[Sweep, Recipe]:
    made = Sweep.existing(tmp_path, "one")
    return made, made.recipe


@pytest.mark.slow
def test_a_price_makes_money_of_it_by_trial_and_sweep(tmp_path: Path) -> None:
    ran(tmp_path, "resources.price_per_gpu_hour=3")
    made, _ = _again(tmp_path)
    found = document(made)
    assert [trial["cost"]["money"] for trial in found["trials"]] == [3.0, 1.5]
    assert found["cost"]["money"] == 5.25
    assert cost_text(found["cost"]) == "1.75 GPU-hours, 5.25 at the recipe's price"
    assert cost_text({"gpu_seconds": 0.0, "worker_seconds": HOUR}) == "1 worker-hours, no GPU"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu_hours", "worker_hours"])
def test_a_budget_that_is_spent_starts_no_more_trials_also_on_resume(name: str, tmp_path: Path) -> None:
    _, why = ran(tmp_path, f"budget.{name}=1.5")
    assert why == [
        f"budget.{name} = 1.5 is spent (1.75): no more trials are started; "
        f"another sweep may have --set budget.{name}=MORE"
    ]
    made, recipe = _again(tmp_path)
    resumed = StudyTrials(
        open_study(made, recipe),
        recipe,
        lambda params: settle(recipe, params, 1_350),
        enough=lambda: over_budget(sweep_cost(made.trials(), made.record.baseline, recipe), recipe),
    )
    assert resumed.ask("more") is None
    assert resumed.closed == why[0]
    assert len(made.trials()) == 2


def test_a_budget_that_lasts_is_no_reason(tmp_path: Path) -> None:
    assert ran(tmp_path, "budget.gpu_hours=1.8")[1] == []
    with pytest.raises(UserError, match=r"budget\.gpu_hours = 0"):
        load_recipe("quickstart_paper", ["budget.gpu_hours=0"])
