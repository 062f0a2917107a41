"""What a sweep costs is counted over all that ran, priced where there is a price, and bounded by the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from edp.ledger import Ledger
from sweeps.config.recipe import Recipe
from sweeps.results.cost import over_budget, sweep_cost, trial_cost
from sweeps.store.sweep import Sweep
from tests.support import studies
from tests.support.studies import METRICS, ToldTrials, result, sweep, trials

HOUR = 3600.0


def ran(tmp_path: Path, *settings: str) -> tuple[ToldTrials, list[str]]:
    """A sweep of a complete trial of one GPU-hour and a failed one of half of that."""
    made, recipe = sweep(tmp_path, "search.sampler=random", *settings)
    search = trials(made, recipe)
    for trial_id in "ab":
        search.ask(trial_id)
    search.tell("a", result(gpu_seconds=HOUR, worker_seconds=HOUR), Ledger(), [])
    search.tell("b", "died", None, [{"gpu_seconds": 9.0, "worker_seconds": 9.0}, _costs(HOUR / 2)])
    made.update(baseline=METRICS | _costs(HOUR / 4))
    why = over_budget(sweep_cost(made.trials(), made.record.baseline), recipe)
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
    driver = studies.driver(made, recipe)
    for name in ("records", "told", "_read"):
        monkeypatch.setattr(Sweep, name, None)  # nothing that reads them works from here on
    search, reported = ToldTrials(driver), {"valid_ser": 0.5}
    assert search.ask("runs") is not None
    driver.on_trial_result("runs", {"message": [("epoch", (1, reported | _costs(HOUR / 8)))]})
    assert search.ask("more") is not None, "1.375 of 2 hours"
    driver.on_trial_result("runs", {"message": [("epoch", (2, reported | _costs(HOUR)))]})
    assert search.ask("no more") is None, "2.25 of 2 hours, of which one trial's are not told to the study yet"
    search.tell("runs", result(**_costs(HOUR * 1.5), trial_seconds=9.0), None, [])
    monkeypatch.undo()
    assert driver.budget_spent == (
        "budget.gpu_hours = 2 is spent (2.25): no more trials are started; "
        "another sweep may have --set budget.gpu_hours=MORE"
    )
    assert driver._spent.seconds == sweep_cost(made.trials(), made.record.baseline) == _costs(2.75 * HOUR)


def _costs(seconds: float) -> dict[str, float]:
    return {"gpu_seconds": seconds, "worker_seconds": seconds}


@pytest.mark.slow
def test_failed_trials_and_the_baseline_count_too(tmp_path: Path) -> None:
    ran(tmp_path)
    made, _ = _again(tmp_path)
    assert [trial_cost(t)["gpu_seconds"] for t in made.trials()] == [HOUR, HOUR / 2]
    assert sweep_cost(made.trials(), made.record.baseline) == _costs(1.75 * HOUR)


def _again(tmp_path: Path) -> tuple[Sweep, Recipe]:
    made = Sweep.existing(tmp_path, "one")
    return made, made.recipe


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu_hours", "worker_hours"])
def test_a_budget_that_is_spent_starts_no_more_trials_also_on_resume(name: str, tmp_path: Path) -> None:
    _, why = ran(tmp_path, f"budget.{name}=1.5")
    assert why == [
        f"budget.{name} = 1.5 is spent (1.75): no more trials are started; "
        f"another sweep may have --set budget.{name}=MORE"
    ]
    made, recipe = _again(tmp_path)
    resumed = trials(made, recipe)
    assert resumed.ask("more") is None
    assert resumed.driver.budget_spent == why[0]
    assert len(made.trials()) == 2
