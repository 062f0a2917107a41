"""The journal has every training, whatever happened to its folder, and says what happened to the journal."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
from pathlib import Path

import pytest

from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.ledger import Ledger
from sweeps.config.target_epsilon import planned
from sweeps.engine.recorder import Recorder
from sweeps.results.account import CorpusAccount, accounts
from sweeps.store.journal import Release, read_journal, write
from tests.conftest import Command
from tests.support.spending import EXAMPLES, spec_of, training
from tests.support.synthetic import sweep_of
from trainables.records.epochs import LEDGER, write_ledger
from trainables.records.journal import JOURNAL, SIZE, append_discarded, locked, read_id

DELTA = 5e-4
EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")
SPEC = spec_of(*EIGHT)
PLAN = planned(SPEC, EXAMPLES)


def composed(count: float) -> float:
    return gaussian_epsilon(math.sqrt(count) * gaussian_mu(8, DELTA), DELTA)


def account(storage: Path) -> CorpusAccount:
    (found,) = accounts(storage)
    return found


def begun(storage: Path, name: str = "one") -> Path:
    """The folder of a training that has begun."""
    folder = storage / f"train-{name}"
    assert Recorder(folder, SPEC, print, alone=True).begin("train", SPEC, units=EXAMPLES, folder=folder) is None
    return folder


def test_a_training_that_dies_counts_as_planned_and_one_that_goes_on_counts_once(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    write_ledger(PLAN.until(1).completed(PLAN), folder)
    assert account(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-6)
    for _ in range(2):
        begun(tmp_path)
    assert account(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-6), "it goes on"
    half = PLAN.until(2)
    append_discarded(folder, Ledger(discarded=(half,)))
    append_discarded(folder, Ledger(discarded=(half, half)))
    shutil.rmtree(folder)
    assert account(tmp_path).everything(DELTA) == pytest.approx(composed(2), rel=1e-6), "the two halves are lost"
    begun(tmp_path)
    assert account(tmp_path).everything(DELTA) == pytest.approx(composed(3), rel=1e-6), "another one of this name"
    (folder / LEDGER).unlink()
    begun(tmp_path)
    assert account(tmp_path).everything(DELTA) == pytest.approx(composed(4), rel=1e-6), "its steps are unknown"


def test_a_training_that_ends_counts_with_its_ledger(tmp_path: Path) -> None:
    folder = begun(tmp_path)
    recorder = Recorder(folder, SPEC, print, alone=True)
    recorder.end(folder, None)
    assert account(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-6), "its ledger is lost"
    recorder.end(folder, PLAN.until(2).completed(PLAN))
    assert account(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-6), "its plan is the guarantee"
    recorder.end(folder, Ledger())
    assert account(tmp_path).everything(DELTA) == 0, "it failed before its first step"


@pytest.mark.slow
def test_deleted_and_renamed_folders_change_nothing(tmp_path: Path) -> None:
    sweep_of(tmp_path, "gone", 2, *EIGHT, tracked=False)
    sweep_of(tmp_path, "kept", 1, *EIGHT, tracked=False)
    training(tmp_path, "final", *EIGHT)
    before = account(tmp_path)
    assert before.everything(DELTA) == pytest.approx(composed(4), rel=1e-4)
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "train-final")
    (tmp_path / "kept").rename(tmp_path / "gone")
    after = account(tmp_path)
    assert after.everything(DELTA) == before.everything(DELTA)
    assert [row.name for row in after.rows] == ["gone", "kept", "train-final"]
    assert after.uncounted == []


def _append(storage: Path, number: int) -> None:
    for i in range(50):
        with locked(storage) as handle:
            write(storage, handle, [Release(id=f"{number}", at="", model=f"{i}" * 1000)])


@pytest.mark.slow
def test_writers_at_the_same_time_lose_no_line(tmp_path: Path) -> None:
    writers = [multiprocessing.Process(target=_append, args=(tmp_path, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert sorted((line["id"], line["model"]) for line in lines) == sorted(
        (f"{number}", f"{i}" * 1000) for number in range(4) for i in range(50)
    )
    assert int((tmp_path / SIZE).read_text()) == (tmp_path / JOURNAL).stat().st_size


def test_a_journal_that_was_cut_says_so_for_ever(tmp_path: Path) -> None:
    shutil.rmtree(begun(tmp_path))
    whole = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(whole[:-30])
    lost = read_journal(tmp_path).lost
    assert lost == [
        f"account.jsonl has lost lines: 30 of its {len(whole):,} bytes are gone",
        "account.jsonl: line 2 is cut or broken",
    ]
    begun(tmp_path, "two")
    assert account(tmp_path).uncounted == [lost[1], lost[0]], "the new lines are whole"
    assert account(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-6)
    folder = begun(tmp_path, "three")
    lines = (tmp_path / JOURNAL).read_text().splitlines(keepends=True)
    (tmp_path / JOURNAL).write_text("".join(line for line in lines if f'"id": "{read_id(folder)}"' not in line))
    Recorder(folder, SPEC, print, alone=True).end(folder, PLAN)
    assert any("the line that began training" in line for line in account(tmp_path).uncounted)


@pytest.mark.slow
def test_trainings_without_a_journal_are_never_nothing(tmp_path: Path, command: Command) -> None:
    sweep_of(tmp_path, "s", 1, *EIGHT, tracked=False)
    training(tmp_path, "one", *EIGHT)
    (tmp_path / JOURNAL).unlink()
    words = ("account", "communication", "--storage", str(tmp_path), "--json")

    def said() -> tuple[list[str], float | None]:
        (found,) = json.loads(command(*words)[1])["corpora"]
        return found["uncounted"], found["epsilon_of_everything"]

    older = "trainings that are older than the journal, or were copied here: s/trials/0 and train-one"
    lost, total = said()
    assert (lost[0].startswith("account.jsonl has lost lines"), lost[1], total) == (True, older, None)
    assert not (tmp_path / JOURNAL).exists(), "a reader writes nothing"
    (tmp_path / SIZE).unlink()
    assert said() == ([older], None)
    code, out, err = command("account", "--storage", str(tmp_path))
    assert (code, out) == (0, "")
    assert f"is unknown: {older}" in err
    begun(tmp_path, "two")
    shutil.rmtree(tmp_path / "s")
    shutil.rmtree(tmp_path / "train-one")
    assert said() == ([older], pytest.approx(8, rel=1e-6)), "it stays known"
