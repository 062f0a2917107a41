"""The study outlives its process, in a file or a database, and says of every trial how it ended."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import OperationalError

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.store.study import StudyAway, away, study_storage
from tests.support.postgres import postgres, postgres_server
from tests.support.studies import METRICS, result, sweep, trials
from trainables.records.job import EpochResult, TrialResult

WAITS = "the study's database does not answer: waiting until it does"

_LOOK = """
import json, sys, optuna
(study,) = optuna.study.get_all_study_names(sys.argv[1])
study = optuna.load_study(study_name=study, storage=sys.argv[1])
print(json.dumps([[t.state.name, t.values, sorted(t.user_attrs)] for t in study.trials]))
"""


@pytest.fixture(params=["of its own", "shared", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, bool]]:
    """A study's database, and whether the recipe names it."""
    if request.param == "postgres":
        with postgres() as url:
            yield url, True
    elif request.param == "shared":
        yield f"sqlite:///{tmp_path / 'shared.db'}", True
    else:
        yield f"sqlite:///{tmp_path / 'one' / 'study.db'}", False


@pytest.mark.stress
def test_a_server_that_goes_away_is_waited_for_and_named_if_it_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with postgres_server() as server:
        made, recipe = sweep(tmp_path, "search.sampler=random", f"search.study={server.url}")
        search = trials(made, recipe)
        assert search.ask("a") is not None
        server.stop()
        threading.Timer(4, server.start).start()
        assert search.ask("b") is not None
        assert [record.getMessage() for record in caplog.records].count(WAITS) == 1
        server.stop()
        monkeypatch.setattr("sweeps.store.study.PATIENCE_S", 1.0)
        with pytest.raises((StorageInternalError, OperationalError)) as gone:
            search.ask("c")
        assert (away(gone.value) or "").startswith("the study's database does not answer (connection failed: ")
        with pytest.raises(StudyAway, match=r"cannot be read now .*; allowed: a database that answers"):
            made.trials()


@pytest.mark.stress
def test_another_process_reads_every_state_value_and_attribute(where: tuple[str, bool], tmp_path: Path) -> None:
    url, own = where
    settings = [f"search.study={url}"] if own else []
    made, recipe = sweep(tmp_path, "search.sampler=random", "epsilon_budget=1e5", *settings)
    assert made.trials() == []
    search = trials(made, recipe)
    for trial_id in "abc":
        assert search.ask(trial_id) is not None
    search.tell("a", result(), Ledger(), [{"valid_ser": 0.9}])
    search.tell("b", "a worker died", Ledger(), [])
    search.tell("c", result("dominated"), Ledger(), [])
    assert made.study_name(recipe) == ("one-01234567" if own else "one")

    out = subprocess.run([sys.executable, "-c", _LOOK, url], capture_output=True, text=True, check=True).stdout
    seen: list[Any] = json.loads(out)
    ended = [entry for entry in seen if "state" not in entry[2] or "points" in entry[2]]
    assert [state for state, _, _ in ended] == ["COMPLETE", "FAIL", "PRUNED"]
    assert [values for _, values, _ in ended] == [[0.5, 0.5, 1.0], None, None]
    assert {"params", "metrics", "points", "epochs", "ledger"} <= set(ended[0][2])
    refused = [entry for entry in seen if entry not in ended]
    assert refused, "the guesses of large epsilon are over the budget"
    assert all(state == "FAIL" and {"reason", "run_id", "state"} <= set(keys) for state, _, keys in refused)

    records = {t.number: t for t in made.trials()}
    assert sorted(t.state for t in records.values() if t.state != "refused") == ["complete", "failed", "stopped"]
    complete = next(t for t in records.values() if t.state == "complete")
    assert [(p.name, p.metrics["epsilon"]) for p in complete.points] == [
        (f"{complete.number}@1", 5.0),
        (str(complete.number), 10.0),
    ]
    assert complete.points[0].folder == made.trial_folder(complete.number) / "epochs" / "1"
    assert complete.points[1].folder == made.trial_folder(complete.number)
    assert complete.curve == ({"valid_ser": 0.9},)


def test_points_without_finite_objectives_are_no_candidates(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path)
    search = trials(made, recipe)
    search.ask("a")
    one = result()
    bad = EpochResult(1, METRICS | {"mia_auc": float("nan")})
    search.tell("a", TrialResult(one.metrics, one.ledger, {}, (bad, one.epochs[-1])), None, [])
    assert [point.epoch for point in made.trials()[0].points] == [3]


@pytest.mark.slow
def test_ten_failures_in_a_row_end_the_search_with_their_reasons_counted(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random")
    search = trials(made, recipe)

    def run(trial_id: str, outcome: TrialResult | str) -> None:
        assert search.ask(trial_id) is not None
        search.tell(trial_id, outcome, None, [])

    for i in range(9):
        run(f"first{i}", "the loss is nan")
    run("good", result())
    assert search.driver.gave_up is None
    for i in range(10):
        run(f"then{i}", "a worker died" if i % 3 == 0 else "the loss is nan")
    assert search.driver.gave_up == "10 trials in a row failed: 6 x the loss is nan; 4 x a worker died"
    assert search.ask("more") is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tpe", "random", "nsga2"])
def test_a_search_that_goes_on_does_not_start_from_the_same_numbers_again(name: str, tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, f"search.sampler={name}", "search.points_to_evaluate=[]", "search.trials=40")

    def some(prefix: str) -> list[Any]:
        search, found = trials(made, recipe), []
        for i in range(3):
            suggested = search.ask(f"{prefix}{i}")
            assert suggested is not None, "the search is not at its end"
            found.append(suggested.params)
            search.tell(f"{prefix}{i}", result(), None, [])
        return found

    first, second = some("a"), some("b")
    assert not [params for params in second if params in first]


def test_a_database_that_does_not_open_is_a_mistake_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"search.study = 'sqlite:////nowhere/study.db' cannot be opened"):
        study_storage("sqlite:////nowhere/study.db")
    with pytest.raises(UserError, match="holds a password, or an option that may be one"):
        sweep(tmp_path, "search.study=postgresql://me:secret@host/optuna")
    with pytest.raises(UserError, match=r"search\.study"):
        sweep(tmp_path, "search.study=study.db")
    monkeypatch.setenv("PLACE", str(tmp_path))
    assert "study.db" in study_storage("sqlite:///$PLACE/study.db").url
    assert (tmp_path / "study.db").is_file()


def test_the_sampler_is_told_what_validation_measured_and_nothing_of_the_test_split(tmp_path: Path) -> None:
    made, recipe = sweep(tmp_path, "search.sampler=random")
    told = trials(made, recipe)
    assert told.ask("0") is not None
    seen = {"valid_ser": 0.2, "valid_mia_auc": 0.55, "ser": 0.9, "mia_auc": 0.8}
    assert told.tell("0", result(**seen), Ledger(), []) == "complete"
    assert told.driver._study.trials[0].values == pytest.approx([0.2, 0.55, 1.0])
    (record,) = made.trials()
    assert record.metrics["ser"] == 0.9, "the test SER stands beside it"
