"""What the trials' folders prove happened is never denied, and an ε that nobody can know is never shown as small."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from tests.conftest import Command
from tests.support.synthetic import sweep_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("made")
    sweep_of(storage, "base", 3)
    sweep_of(storage, "other", 2, tracked=False)
    return storage


@pytest.fixture
def with_copy(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A storage folder whose studies have their second copies."""
    monkeypatch.setattr("sweeps.store.sweep._note_once", logging.getLogger("sweeps.store").warning)
    return shutil.copytree(made, tmp_path / "runs")


@pytest.fixture
def storage(with_copy: Path) -> Path:
    """A storage folder whose studies have no second copies."""
    for copy in with_copy.glob("*/study-copy.db"):
        copy.unlink()
    return with_copy


def _nothing(study: Path) -> None:
    study.unlink()


def _empty(study: Path) -> None:
    study.write_bytes(b"")


def _truncated(study: Path) -> None:
    study.write_bytes(study.read_bytes()[: study.stat().st_size // 2])


def _header_alone(study: Path) -> None:
    study.write_bytes(study.read_bytes()[:100])


def _folder(study: Path) -> None:
    study.unlink()
    study.mkdir()


def _foreign(study: Path) -> None:
    study.unlink()
    with sqlite3.connect(study) as database:
        database.execute("create table studies (name text)")
    database.close()


def _of_another_sweep(study: Path) -> None:
    shutil.copy(study.parent.parent / "other" / "study.db", study)


def _link_to_nothing(study: Path) -> None:
    study.unlink()
    study.symlink_to("/nowhere/study.db")


def _text(study: Path) -> None:
    study.write_text("hello\n" * 1000)


def _spoilt_rows(study: Path) -> None:
    with sqlite3.connect(study) as database:
        database.execute("update trial_user_attributes set value_json = '{\"a' where key = 'metrics'")
    database.close()


def _rows_of_another_kind(study: Path) -> None:
    with sqlite3.connect(study) as database:
        database.execute("update trial_user_attributes set value_json = '[1, \"x\"]' where key = 'points'")
    database.close()


def _fewer_trials(study: Path) -> None:
    with sqlite3.connect(study) as database:
        database.execute("delete from trials where number = 2")
    database.close()


FAULTS: list[Callable[[Path], None]] = [
    _nothing,
    _empty,
    _truncated,
    _header_alone,
    _folder,
    _foreign,
    _of_another_sweep,
    _link_to_nothing,
    _text,
    _spoilt_rows,
    _rows_of_another_kind,
    _fewer_trials,
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_study_that_is_gone_is_read_from_its_copy_and_resume_writes_it_again(
    fault: Callable[[Path], None], with_copy: Path, command: Command
) -> None:
    where = ("--storage", str(with_copy))
    study, before = with_copy / "base" / "study.db", command("status", "base", "--json", *where)[1]
    (study.parent / "study.db-journal").write_bytes(b"left by a dead process")
    fault(study)
    code, out, err = command("status", "base", "--json", *where)
    assert (code, out) == (0, before), err
    assert "study" in err
    assert "its copy study-copy.db is read; `edp-sweep resume base" in err
    if fault is _folder:
        assert "study.db is a folder; allowed: a file, or nothing" in command("resume", "base", *where)[2]
        return
    code, _, err = command("resume", "base", *where)
    assert code == 0, err
    assert command("status", "base", "--json", *where) == (0, before, "")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_study_that_is_gone_is_one_line_and_nothing_changes(
    fault: Callable[[Path], None], storage: Path, command: Command
) -> None:
    fault(storage / "base" / "study.db")
    _is_refused_and_changes_nothing(storage, command, ("status", "base"), ("resume", "base"))


@pytest.mark.slow
def test_every_command_says_it_and_list_goes_on(storage: Path, command: Command, tmp_path: Path) -> None:
    where = ("--storage", str(storage))
    _truncated(storage / "base" / "study.db")
    written = str(tmp_path / "written")
    _is_refused_and_changes_nothing(
        storage,
        command,
        ("front", "base"),
        ("pick", "base", "--output", written),
        ("report", "base", "-o", written),
        ("confirm", "base"),
        ("attack", "base/0"),
        ("ui", "base", "--no-browser"),
    )
    assert not Path(written).exists()
    code, out, err = command("list", *where)
    assert code == 2
    assert [line.split()[:2] for line in out.splitlines()] == [["base", "broken"], ["other", "finished"]]
    assert len(err.splitlines()) == 1


def _is_refused_and_changes_nothing(storage: Path, command: Command, *lines: tuple[str, ...]) -> None:
    spoilt = _contents(storage / "base")
    for words in lines:
        code, out, err = command(*words, "--storage", str(storage))
        assert (code, out) == (2, ""), (words, out, err)
        assert len(err.splitlines()) == 1, err
        assert "study" in err
        assert f"{storage}/base/study.db from a backup" in err, words
    assert _contents(storage / "base") == spoilt


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def test_a_sweep_that_has_not_begun_has_no_trials_yet(tmp_path: Path, command: Command) -> None:
    sweep_of(tmp_path, "new", 0, tracked=False, state="running")
    code, out, err = command("status", "new", "--json", "--storage", str(tmp_path))
    assert code == 0, err
    assert json.loads(out)["trials"] == []
    assert not (tmp_path / "new" / "study.db").exists(), "looking makes no study"


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"private": true, "entries": []}', "\0", "[" * 5000])
@pytest.mark.slow
def test_an_epsilon_whose_ledger_cannot_be_read_is_unknown(text: str, storage: Path) -> None:
    (storage / "base" / "trials" / "1" / "ledger.json").write_text(text)
    sweep = Sweep.existing(storage, "base")
    assert Snapshot(sweep).epsilon is None


@pytest.mark.stress
@pytest.mark.parametrize("text", [None, "{"])
def test_an_epsilon_that_is_unknown_is_so_wherever_it_is_shown(
    text: str | None, storage: Path, command: Command
) -> None:
    where, sweep = ("--storage", str(storage)), Sweep.existing(storage, "base")
    known = Snapshot(sweep).epsilon
    assert known
    (storage / "base" / "trials" / "1" / "ledger.json").unlink()
    if text is not None:
        (storage / "base" / "trials" / "1" / "ledger.json").write_text(text)
    for words in (("status", "base"), ("front", "base")):
        code, out, err = command(*words, "--json", *where)
        assert code == 0, err
        assert json.loads(out)["epsilon_of_sweep"] is None
        code, out, err = command(*words, *where)
        assert "ε of the whole sweep (all trials composed): unknown: the ledger of trial 1 is missing" in out
    from dashboards.pareto.data import snapshot
    from dashboards.pareto.parts import state_line

    assert state_line(snapshot(sweep)).endswith("ε of the whole sweep: unknown")
    code, out, err = command("report", "base", "-o", str(storage / "report.html"), *where)
    assert code == 0, err
    assert "<strong>unknown</strong>, since the ledger of trial 1" in (storage / "report.html").read_text()

    assert command("resume", "base", *where)[0] == 0  # the study has a copy
    assert Snapshot(sweep).epsilon == known


def test_a_ledger_that_is_not_the_one_that_the_trial_wrote_says_nothing(storage: Path) -> None:
    sweep = Sweep.existing(storage, "base")
    file = sweep.trial_folder(2) / "ledger.json"
    file.write_text(file.read_text().replace('"epoch": 0', '"epoch": 00').replace(": 00", ":  0"))
    assert Snapshot(sweep).epsilon is None


@pytest.mark.slow
def test_what_an_interrupted_trial_has_executed_counts_before_it_is_asked_for_again(tmp_path: Path) -> None:
    from sweeps.config.target_epsilon import planned
    from sweeps.engine.study import open_study, requeue_interrupted
    from tests.support import studies
    from trainables.records.epochs import write_ledger

    made, recipe = studies.sweep(tmp_path, 'search.points_to_evaluate=[{"C": 0.25, "z0": 0.125, "decay": "none"}]')
    suggestion = studies.trials(made, recipe).ask("a")
    assert suggestion is not None
    write_ledger(planned(suggestion.spec, 1_350), made.trial_folder(0))
    cost = Snapshot(made).epsilon
    assert cost
    for again in ("b", "c"):
        requeue_interrupted(open_study(made, recipe))
        assert Snapshot(made).epsilon == cost, "once, however often it was interrupted"
        assert [trial.state for trial in made.trials()] == ["interrupted"]
        assert studies.trials(made, recipe).ask(again) is not None
