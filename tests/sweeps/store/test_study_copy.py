"""The second copy of a study: a driver may die at any moment, and its study with it; every step that ran is counted."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.engine.default import DefaultDialect

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.target_epsilon import ConfigurationRefused, planned
from sweeps.engine import driver
from sweeps.engine.study import open_study, requeue_interrupted, tell_refusal
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.support.studies import ToldTrials, result, sweep, trials
from trainables.records.epochs import read_ledger, write_ledger

UNITS = 1_350


def train(search: ToldTrials, name: str) -> None:
    """Ask for a trial, let it write its ledger ahead of its steps, as a worker does, and tell its end."""
    suggestion = search.ask(name)
    assert suggestion is not None
    ledger = planned(suggestion.spec, UNITS)
    write_ledger(ledger, search.driver._sweep.trial_folder(suggestion.number))
    search.tell(name, result(), ledger, [{"valid_ser": 0.9}])


def executed(made: Sweep) -> dict[int, Ledger | None]:
    """The ledger in each trial's folder."""
    return {number: read_ledger(made.trial_folder(number)) for number in made.trial_folders()}


def counted(made: Sweep) -> dict[int, Ledger | None]:
    """The ledgers that the sweep's ε is composed of."""
    return {trial.number: trial.ledger for trial in made.trials() if trial.state != "refused"}


@pytest.mark.slow
def test_a_driver_may_die_at_any_moment_and_its_study_be_lost(
    long_story: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, recipe = sweep(tmp_path / "runs", "search.sampler=random")
    kept = list[Path]()

    def then_keep(act: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the sweep's folder as it is after each of these acts."""

        def acts(*about: Any) -> Any:
            answer = act(*about)
            kept.append(Path(shutil.copytree(made.folder, tmp_path / "kept" / str(len(kept)) / "one")))
            return answer

        return acts

    monkeypatch.setattr(DefaultDialect, "do_commit", then_keep(DefaultDialect.do_commit))
    monkeypatch.setattr(Path, "replace", then_keep(Path.replace))  # every file of a folder is written by it
    search = trials(made, recipe)
    for name in "ab":
        train(search, name)
    assert search.ask("cut off") is not None
    write_ledger(planned(recipe.trial(made.trials()[-1].params), UNITS), made.trial_folder(2))
    requeue_interrupted(open_study(made, recipe))
    train(trials(made, recipe), "again")
    monkeypatch.undo()

    assert len(kept) > 60
    costs = list[float]()
    for folder in kept:
        one = Sweep(folder.parent, "one")
        if one.trial_folders():
            whole = counted(one)
            assert whole.items() >= executed(one).items(), folder
            (folder / "study.db").unlink()
            assert counted(one).items() >= executed(one).items(), folder
            cost = Snapshot(one).epsilon
            if cost is None:  # unknown is never small: a trial that was asked for has no folder yet
                assert counted(one).keys() > executed(one).keys()
            else:
                costs.append(cost)
    assert len(costs) > 40
    assert costs == sorted(costs), "what has run is never forgotten"
    assert costs[-1] > costs[0]


@pytest.mark.slow
def test_a_trial_whose_end_the_copy_lacks_goes_on_under_its_number_and_its_steps_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random", "search.points_to_evaluate=[]")
    search = trials(made, recipe)
    train(search, "whole")
    asked = search.ask("lost")
    assert asked is not None
    ledger = planned(asked.spec, UNITS)

    def dies(*about: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "back_up", dies)
    with pytest.raises(KeyboardInterrupt):
        search.tell("lost", result(), ledger, [])
    monkeypatch.undo()
    cost = Snapshot(made).epsilon
    assert [trial.state for trial in made.trials()] == ["complete", "complete"]
    (made.folder / "study.db").unlink()
    assert [trial.state for trial in made.trials()] == ["complete", "interrupted"]
    assert Snapshot(made).epsilon == cost
    made.restore()
    assert requeue_interrupted(open_study(made, recipe)) == 1
    again = trials(made, recipe).ask("again")
    assert again is not None
    assert (again.number, again.params) == (asked.number, asked.params)
    assert counted(made)[again.number] == ledger


@pytest.mark.slow
def test_a_study_that_is_deleted_while_its_driver_runs_loses_nothing(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random", "search.points_to_evaluate=[]")
    search = trials(made, recipe)
    train(search, "a")
    assert search.ask("b") is not None
    (made.folder / "study.db").unlink()
    with pytest.raises(StorageInternalError):  # SQLite writes to no file that is gone
        search.tell("b", result(), Ledger(), [])
    assert [trial.state for trial in made.trials()] == ["complete", "interrupted"]
    made.restore()
    made.study_copy.unlink()
    requeue_interrupted(open_study(made, recipe))
    train(trials(made, recipe), "again")
    assert [trial.state for trial in made.trials()] == ["complete", "complete"]


@pytest.mark.slow
def test_a_study_that_is_damaged_while_its_driver_runs_does_not_spoil_its_copy(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random")
    search = trials(made, recipe)
    train(search, "a")
    before, study = made.study_copy.read_bytes(), made.folder / "study.db"
    with study.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * (study.stat().st_size - 4096 * 3))
    search.driver._study._storage._backend.engine.dispose()  # it holds the pages that it has read
    with pytest.raises(sqlite3.DatabaseError):
        search.driver._back_up()
    assert made.study_copy.read_bytes() == before


def test_a_study_in_a_database_of_the_users_has_no_copy_and_its_loss_names_the_databases_own_backup(
    tmp_path: Path,
) -> None:
    place = tmp_path / "shared.db"
    made, recipe = sweep(tmp_path / "runs", f"search.study=sqlite:///{place}", "search.sampler=random")
    train(trials(made, recipe), "a")
    assert not list(made.folder.glob("*.db"))
    place.unlink()
    with pytest.raises(UserError, match=f"allowed: sqlite:///{place} from its database's own backup"):
        made.trials()


def test_an_interrupted_trial_that_is_refused_later_has_cost_what_it_executed(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random", "search.points_to_evaluate=[]")
    asked = trials(made, recipe).ask("cut off")
    assert asked is not None
    ledger = planned(asked.spec, UNITS)
    write_ledger(ledger, made.trial_folder(asked.number))
    study = open_study(made, recipe)
    requeue_interrupted(study)
    tell_refusal(study, study.ask(), ConfigurationRefused("no room", asked.params), None)
    (record,) = made.trials()
    assert (record.state, record.ledger) == ("refused", ledger)
    assert Snapshot(made).epsilon
