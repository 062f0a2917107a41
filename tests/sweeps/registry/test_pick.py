"""A configuration is picked by name or by the rule: who, when and why is kept, and no file is lost."""

from __future__ import annotations

import errno
import getpass
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from edp.accounting.selection import composed_epsilon
from edp.spec import UserError
from sweeps.engine.jobs.train import _same_people
from sweeps.registry.pick import Wanted, is_pick, keep, pick_point
from sweeps.results.snapshot import Snapshot
from sweeps.store.picks import (
    ORIGIN,
    Origin,
    Pick,
    origin_of,
    read_picks,
    sweep_named_in,
    write_pick,
)
from sweeps.store.sweep import Sweep, newest
from sweeps.text.figures import epsilon_digits
from tests.conftest import Command
from tests.support import studies, writers
from tests.support.synthetic import sweep_of
from trainables.corpora import generate
from trainables.records.epochs import write_ledger
from trainables.records.files import write_json


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("picking") / "runs"
    sweep_of(place, "old", 2)
    sweep_of(place, "new", 4)
    os.utime(place / "old" / "recipe.yaml", (1, 1))
    return place


@pytest.fixture
def sweep(storage: Path) -> Sweep:
    return Sweep.existing(storage, "new")


def points(sweep: Sweep) -> list[str]:
    return [point.name for trial in sweep.trials() if trial.state == "complete" for point in trial.points]


@pytest.mark.slow
def test_a_point_is_picked_by_its_name_whether_it_is_on_the_front_or_not(
    sweep: Sweep, storage: Path, tmp_path: Path, command: Command
) -> None:
    for name in points(sweep):
        file = tmp_path / f"{name}.yaml"
        code, out, err = command("pick", "new", name, "--output", str(file), "--json", "--storage", str(storage))
        assert code == 0, err
        found = json.loads(out)
        point = Snapshot(sweep).named(name)
        assert (found["number"], found["epoch"]) == (point.trial, point.epoch)
        assert f"# Trial {point.trial} of sweep new after epoch {point.epoch}" in file.read_text()
        assert Snapshot(sweep).named(f"{point.trial}@{point.epoch}") == point


@pytest.mark.slow
def test_who_picked_when_and_why_is_kept_and_an_earlier_run_is_picked_no_more(sweep: Sweep, tmp_path: Path) -> None:
    one, other = (Snapshot(sweep).named(name) for name in ("0", "1"))
    client = MlflowClient(sweep.record.tracking_uri)
    keep(Snapshot(sweep), one, "A person named it.", Wanted(tmp_path / "one.yaml"))
    keep(Snapshot(sweep), other, "It is best.", Wanted(tmp_path / "other.yaml"), {"ser": 0.9})
    last = read_picks(sweep)[-1]
    assert (last.trial, last.epoch, last.by, last.limits) == (1, other.epoch, getpass.getuser(), {"ser": 0.9})
    assert one.run_id is not None
    assert other.run_id is not None
    assert client.get_run(one.run_id).data.tags["picked"] == "false"
    tags = client.get_run(other.run_id).data.tags
    assert tags["picked"] == "true"
    assert tags["picked_by"] == getpass.getuser()
    assert tags["picked_limits"] == "ser <= 0.9"
    assert tags["picked_rule"] == "It is best."
    assert tags["picked_at"] == last.at


@pytest.mark.slow
def test_a_file_that_is_there_stays_without_force(
    sweep: Sweep, storage: Path, tmp_path: Path, command: Command
) -> None:
    file = tmp_path / "picked.yaml"
    words = ("--output", str(file), "--storage", str(storage))
    assert command("pick", "new", "0", *words)[0] == 0
    first, picked = file.read_text(), len(read_picks(sweep))
    code, _, err = command("pick", "new", "1", *words)
    assert code == 2
    assert "it is there already; allowed: another file, or --force" in err
    assert file.read_text() == first
    assert len(read_picks(sweep)) == picked, "nothing was picked"
    assert command("pick", "new", "0", *words)[0] == 0, "the same again changes nothing"
    assert command("pick", "new", "1", "--force", *words)[0] == 0
    assert file.read_text() != first
    assert is_pick(sweep, file), "so the page may replace it"
    file.write_text(file.read_text() + "# mine\n")
    assert not is_pick(sweep, file)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("9@3",), "point = '9@3': sweep new has no model of this name"),
        (("nonsense",), "point = 'nonsense'"),
        (("0", "--max-ser", "0.5"), "limits choose a point, too"),
        (("--max-epsilon", "inf"), "--max-epsilon = inf: allowed: a number of at least 0"),
        (("0", "--register", "a/b"), "--register = 'a/b'"),
        (("0", "--alias", "winner"), "winner"),
        (
            ("0", "--alias", "champion"),
            "--alias: it describes a registered version; allowed: together with --register MODEL",
        ),
        (("0", "--with-encoder"), "--with-encoder: it describes a registered version"),
        (("0", "--register", "voice"), "is gone; allowed: a configuration whose files are there"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    words: tuple[str, ...], says: str, storage: Path, tmp_path: Path, command: Command
) -> None:
    file = tmp_path / "picked.yaml"
    code, out, err = command("pick", "new", *words, "--output", str(file), "--storage", str(storage))
    assert code == 2
    assert says in err
    assert out == ""
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_what_could_not_be_noted_as_a_pick_leaves_no_new_file(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sweep_of(tmp_path / "runs", "new", 2)
    file = tmp_path / "picked.yaml"
    if there:
        file.touch()
    monkeypatch.setattr("sweeps.registry.pick.write_pick", full)
    with pytest.raises(OSError, match="No space left"):
        pick_point(Snapshot(Sweep.existing(tmp_path / "runs", "new")), {}, Wanted(file, force=True), "0")
    assert file.exists() == there


@pytest.mark.slow
def test_a_point_without_a_guarantee_is_refused_where_one_is_required_and_asked_about_where_it_is_registered(
    sweep: Sweep, tmp_path: Path
) -> None:
    worst = max((Snapshot(sweep).named(name) for name in points(sweep)), key=lambda p: p.metrics["epsilon"])
    assert worst.metrics["epsilon"] > 10
    file = tmp_path / "picked.yaml"
    with pytest.raises(UserError, match=f"trial {worst.name} has no guarantee"):
        pick_point(Snapshot(sweep), {}, Wanted(file, require_guarantee=True), worst.name)
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(UserError, match="it was not registered"):
        pick_point(Snapshot(sweep), {}, Wanted(file, "helper"), worst.name, no)
    assert len(asked) == 1
    assert not file.exists()
    assert not MlflowClient(sweep.record.tracking_uri).search_registered_models()


@pytest.mark.slow
def test_without_a_name_it_is_the_newest_sweep_and_says_so(storage: Path, tmp_path: Path, command: Command) -> None:
    found = newest(storage)
    assert found is not None
    assert found.name == "new"
    for words in (("status",), ("front",), ("pick", "--output", str(tmp_path / "a.yaml"))):
        code, _, err = command(*words, "--storage", str(storage))
        assert code == 0, err
        assert f"no name given: new, the newest sweep in {storage}" in err
    code, _, err = command("status", "--storage", str(tmp_path / "empty"))
    assert code == 2
    assert "name: none is given" in err


@pytest.mark.slow
def test_a_training_of_what_was_picked_belongs_to_the_sweeps_epsilon(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "runs", "s", 2)
    point = Snapshot(sweep).named("0")
    keep(Snapshot(sweep), point, "", Wanted(tmp_path / "picked.yaml"))
    before = Snapshot(sweep).epsilon
    origin = origin_of(tmp_path / "picked.yaml", tmp_path / "runs")
    assert origin == Origin(sweep="s", trial=0, epoch=point.epoch)
    folder = tmp_path / "runs" / "train-picked-1"
    assert point.ledger is not None
    write_ledger(point.ledger, folder)
    write_json(folder / ORIGIN, origin)
    ledgers = [trial.ledger for trial in sweep.trials() if trial.ledger is not None]
    found = Snapshot(sweep).epsilon
    assert found == composed_epsilon([*ledgers, point.ledger], sweep.recipe.edp.delta)
    assert before is not None
    assert found is not None
    assert found > before
    assert "(all trials and 1 final training composed)" in Snapshot(sweep).cost_line
    (folder / "ledger.json").unlink()
    assert Snapshot(sweep).epsilon is None, "unknown is never small"
    assert "the ledger of train-picked-1 is missing" in Snapshot(sweep).cost_line
    (sweep.folder / "study.db").rename(sweep.folder / "gone.db")
    sweep.study_copy.unlink()
    assert origin_of(tmp_path / "picked.yaml", tmp_path / "runs") == origin, "what cannot be read is not left out"
    picked = (tmp_path / "picked.yaml").read_text()
    for above in ("\ufeff", "---\n", "\n", "# mine\n"):
        (tmp_path / "edited.yaml").write_text(above + picked)
        assert origin_of(tmp_path / "edited.yaml", tmp_path / "runs") == origin
    assert origin_of(tmp_path / "picked.yaml", tmp_path / "elsewhere") is None
    assert sweep_named_in(tmp_path / "picked.yaml") == "s"
    (tmp_path / "other.yaml").write_text((tmp_path / "picked.yaml").read_text().partition("\n")[2])
    assert origin_of(tmp_path / "other.yaml", tmp_path / "runs") is None, "somebody's own configuration"


def test_the_same_people_count_however_the_corpus_is_split_or_named(tmp_path: Path) -> None:
    mine = writers.jsonl(generate("video", 60, seed=1), tmp_path / "mine")
    again = writers.jsonl(generate("video", 60, seed=1), tmp_path / "moved")
    others = writers.jsonl(generate("video", 60, seed=2), tmp_path / "others")
    sweep, recipe = studies.sweep(tmp_path / "runs", f"corpus.path={mine}", "corpus.name=mine")
    origin, spec = Origin(sweep=sweep.name, trial=0, epoch=1), recipe.trial({"C": 1.0, "z0": 1.0})

    def counts(**changes: object) -> bool:
        return _same_people(
            origin, spec.model_copy(update={"corpus": spec.corpus.model_copy(update=changes)}), tmp_path / "runs"
        )

    assert counts()
    assert counts(seed=1)
    assert counts(utterances=30)
    assert counts(split="published")
    assert counts(path=str(again), name="other")
    assert counts(path=str(tmp_path / "gone")), "what is not known counts"
    assert not counts(path=str(others))
    longer = writers.jsonl([*generate("video", 60, seed=1)[1:], *generate("health", 60, seed=1)], tmp_path / "longer")
    assert counts(path=str(longer)), "other bytes, and most of the same utterances"


@pytest.mark.slow
def test_who_picks_while_others_do_loses_nothing_of_theirs(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "runs", "s", 1, tracked=False)
    one = Pick(trial=0, epoch=4, by="me", at="2026-01-01T00:00:00+00:00", limits={}, why="")

    def choose(who: int) -> None:
        for i in range(10):
            made = one.model_copy(update={"by": f"{who} {i}"})
            write_pick(sweep, made)
            write_pick(sweep, made.model_copy(update={"model": "models:/m/1"}), instead_of=made)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(choose, range(4)))
    everybody = {f"{who} {i}" for who in range(4) for i in range(10)}
    assert {pick.by for pick in read_picks(sweep) if pick.model} == everybody
    assert len(read_picks(sweep)) == 40


@pytest.mark.slow
def test_what_was_registered_while_a_sweep_ran_is_told_its_epsilon_at_the_end(tmp_path: Path, command: Command) -> None:
    sweep = sweep_of(tmp_path / "runs", "s", 2)
    client = MlflowClient(sweep.record.tracking_uri, registry_uri=sweep.record.tracking_uri)
    client.create_registered_model("m")
    client.create_model_version("m", source=(tmp_path / "m").as_uri(), tags={"epsilon_of_sweep": "1"})
    write_pick(sweep, Pick(trial=0, epoch=4, by="me", at="", limits={}, why="", model="models:/m/1"))
    code, _, err = command("resume", "s", "--storage", str(tmp_path / "runs"))
    assert code == 0, err
    cost = Snapshot(sweep).epsilon
    assert cost is not None
    assert client.get_model_version("m", "1").tags["epsilon_of_sweep"] == epsilon_digits(cost)
