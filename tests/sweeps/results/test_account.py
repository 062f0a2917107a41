"""An account holds everything that was trained on a corpus, under whatever name, and composes it."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edp.accounting.composition import Composition
from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.ledger import Ledger
from sweeps.config.spending import Spending, together
from sweeps.config.target_epsilon import planned
from sweeps.engine.recorder import Recorder
from sweeps.results.account import CorpusAccount, accounts
from sweeps.store.journal import release
from sweeps.store.picks import Origin
from tests.support import studies, writers
from tests.support.spending import EXAMPLES, FULL, spec_of, training
from tests.support.synthetic import sweep_of
from trainables.config import CorpusSpec
from trainables.corpora import generate

DELTA = 5e-4
MU = gaussian_mu(8, DELTA)
EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")


def composed(count: int) -> float:
    """The ε of so many Gaussian mechanisms that cost 8 each (Dong, Roth & Su 2022: their μ² add)."""
    return gaussian_epsilon(math.sqrt(count) * MU, DELTA)


def only(storage: Path, **about: Any) -> CorpusAccount:
    (account,) = [one for one in accounts(storage, **about) if "communication" in one.names]
    return account


def test_two_trainings_at_eight_each_are_12_7_together(tmp_path: Path) -> None:
    for name in ("one", "two"):
        training(tmp_path, name, *EIGHT, *FULL, origin=Origin(sweep="gone", trial=1, epoch=4))
    account = only(tmp_path)
    assert [row.epsilon(DELTA) for row in account.rows] == pytest.approx([8, 8], rel=1e-6)
    assert account.everything(DELTA) == account.released(DELTA) == pytest.approx(composed(2), rel=1e-6)
    assert f"{composed(2):.1f}" == "12.7"
    assert (account.delta, account.unit, account.uncounted) == (DELTA, "example", [])


@pytest.mark.slow
def test_a_sweep_counts_as_released_if_it_chose_what_was(tmp_path: Path) -> None:
    looked = sweep_of(tmp_path, "looked", 3, *EIGHT, tracked=False)
    chose = sweep_of(tmp_path, "chose", 2, *EIGHT, tracked=False)
    account = only(tmp_path)
    assert account.released(DELTA) == 0
    assert account.everything(DELTA) == pytest.approx(composed(5), rel=1e-4)
    training(tmp_path, "final", *EIGHT, origin=Origin(sweep="chose", trial=1, epoch=4))
    account = only(tmp_path)
    assert {row.name for row in account.rows if row.released} == {"chose", "train-final"}
    assert account.released(DELTA) == pytest.approx(composed(3), rel=1e-4)
    assert account.everything(DELTA) == pytest.approx(composed(6), rel=1e-4)
    seed, spec = chose.folder / "confirm" / "1" / "seed-1", chose.trials()[0].spec
    recorder = Recorder(chose.folder, spec, print)
    recorder.begin("confirm", spec, units=EXAMPLES, folder=seed, part="confirm 1")
    recorder.end(seed, chose.trials()[0].ledger)
    assert only(tmp_path).released(DELTA) == pytest.approx(composed(4), rel=1e-4), "its figures may have chosen"
    release(looked.trial_folder(0) / "epochs" / "2", "models:/m/1")
    account = only(tmp_path)
    assert account.released(DELTA) == account.everything(DELTA) == pytest.approx(composed(7), rel=1e-4)
    assert [row.models for row in account.rows if row.name == "looked"] == [["trial 0 as models:/m/1"]]


@pytest.mark.slow
def test_a_search_from_another_sweep_counts_that_one_too_whatever_its_name_is_now(tmp_path: Path) -> None:
    first = sweep_of(tmp_path, "first", 2, *EIGHT, tracked=False)
    first.folder.rename(tmp_path / "renamed")
    for name, earlier in (("second", "renamed"), ("third", "second"), ("unrelated", "nowhere")):
        words = f"search.points_from=sweep {earlier} (its ε of 8 for them belongs to this choice)"
        sweep_of(tmp_path, name, 1, *EIGHT, words, "search.points_to_evaluate=[]", tracked=False)
    shutil.rmtree(tmp_path / "renamed")
    shutil.rmtree(tmp_path / "second")
    training(tmp_path, "final", *EIGHT, origin=Origin(sweep="third", trial=0, epoch=4))
    account = only(tmp_path)
    assert account.released(DELTA) == pytest.approx(composed(2 + 1 + 1 + 1), rel=1e-4)
    assert account.everything(DELTA) == pytest.approx(composed(6), rel=1e-4)
    assert account.uncounted == []


@pytest.mark.slow
def test_what_has_no_epsilon_stands_apart_until_it_is_released(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "s", 1, *EIGHT, tracked=False)
    Recorder(sweep.folder, sweep.recipe.baseline(), print).begin("attack", sweep.recipe.baseline(), part="4 models")
    training(tmp_path, "loud", "edp.z0=0", "search.objectives=[ser]")
    spec = spec_of(*EIGHT)
    plain = spec.model_copy(update={"training": spec.non_private_training()})
    training(tmp_path, "plain", *EIGHT, ledger=Ledger(private=False), training=plain.training)
    account = only(tmp_path)
    assert account.everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert account.without_privacy == [
        "s: baseline",
        "s: 4 models",
        "train-loud: 1 training whose noise guarantees nothing",
        "train-plain: training without privacy (sgd)",
    ]
    assert account.released(DELTA) == 0
    release(tmp_path / "train-plain", "models:/m/1")
    assert only(tmp_path).released_without_privacy == ["train-plain"]
    release(tmp_path / "train-loud", "models:/m/2")
    assert only(tmp_path).released(DELTA) == math.inf
    assert only(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-4)


def mine(folder: Path, name: str, first: int, last: int) -> CorpusSpec:
    """A file of a corpus' utterances `first` to `last`."""
    path = writers.jsonl(generate("video", 300, seed=1)[first:last], folder / name)
    return CorpusSpec(name=name, path=str(path))


@pytest.mark.slow
def test_a_corpus_is_recognised_under_other_names_and_by_its_utterances(tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    for name, first, last in (("mine", 0, 200), ("copy", 0, 200), ("part", 150, 300), ("other", 220, 300)):
        training(storage, name, *EIGHT, corpus=mine(tmp_path, name, first, last))
    training(storage, "again", *EIGHT, corpus=mine(tmp_path, "mine", 0, 200).model_copy(update={"utterances": 50}))
    (account,) = accounts(storage, mine(tmp_path, "mine", 0, 200))
    assert set(account.names) == {"mine", "copy", "part", "other"}, "other shares with part, which shares with mine"
    assert account.everything(DELTA) == pytest.approx(composed(5), rel=1e-4)
    training(storage, "strange", *EIGHT, corpus=CorpusSpec(name="communication"))
    assert [len(one.rows) for one in accounts(storage)] == [5, 1]
    shutil.rmtree(tmp_path / "part")
    assert [len(one.rows) for one in accounts(storage)] == [5, 1], "they were compared when they were there"


@pytest.mark.slow
def test_a_corpus_whose_files_are_gone_when_another_comes_is_said(tmp_path: Path) -> None:
    storage, gone, here = tmp_path / "runs", mine(tmp_path, "gone", 0, 200), mine(tmp_path, "here", 100, 300)
    training(storage, "early", *EIGHT, corpus=gone)
    shutil.rmtree(tmp_path / "gone")
    training(storage, "late", *EIGHT, corpus=here)
    (account,) = accounts(storage, here)
    assert account.everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert account.uncounted == ["gone: one of the two corpora was gone, so they could not be compared"]


def spoken(folder: Path, name: str, verb: str, users: range | None) -> CorpusSpec:
    """A file of 200 utterances that no other file has, of users in turn."""
    lines = [
        {"tokens": [verb, f"{name}{i}"], "tags": ["O", "B-whom"], "intent": verb}
        | ({"user": f"user{users[i % len(users)]}"} if users is not None else {})
        for i in range(200)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return CorpusSpec(name=name, path=str(folder / f"{name}.jsonl"))


@pytest.mark.slow
def test_a_person_in_two_corpora_has_one_account_and_their_utterances_have_two(tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    phones, mails = spoken(tmp_path, "phones", "call", range(20)), spoken(tmp_path, "mails", "write", range(19, 40))
    strangers, nameless = spoken(tmp_path, "notes", "note", range(50, 60)), spoken(tmp_path, "logs", "log", None)
    users = ("edp.unit=user", "edp.sampling=shuffle")
    for corpus in (phones, mails, strangers):
        training(storage, corpus.name, *EIGHT, *FULL, *users, corpus=corpus)
    training(storage, "logs", *EIGHT, *FULL, corpus=nameless)
    (account,) = accounts(storage, phones)
    assert (account.unit, account.names, account.unnamed) == ("user", ["phones"], ["logs"])
    assert [(row.name, row.own) for row in account.rows] == [("train-phones", True), ("train-mails", False)]
    assert account.everything(DELTA) == account.everything_user(DELTA) == pytest.approx(composed(2), rel=1e-4)
    assert accounts(storage, strangers)[0].everything(DELTA) == pytest.approx(8, rel=1e-4)
    training(storage, "single", *EIGHT, *FULL, corpus=phones)
    (account,) = accounts(storage, phones)
    twice = gaussian_epsilon(math.sqrt(2**2 + 1) * MU, DELTA)
    assert account.unit == "example"
    assert account.everything(DELTA) == pytest.approx(twice, rel=1e-4), "mails has none of these utterances"
    text = (storage / "account.jsonl").read_text()
    assert "user19" not in text
    assert hashlib.sha256(b"user19").hexdigest()[:16] not in text
    assert (storage / "account.key").stat().st_mode & 0o777 == 0o600
    (storage / "account.key").unlink()
    late = spoken(tmp_path, "late", "say", range(20))
    training(storage, "late", *EIGHT, *FULL, *users, corpus=late)
    (account,) = accounts(storage, late)
    assert account.unnamed == ["phones", "mails", "notes", "logs"], "their users were hashed by another key"


@pytest.mark.slow
def test_what_took_it_for_public_is_said(tmp_path: Path) -> None:
    sweep_of(tmp_path, "s", 1, *EIGHT, tracked=False)
    shadow = studies.RECIPE.shadow.corpus
    (account,) = accounts(tmp_path, shadow)
    assert account.rows == []
    assert account.without_privacy[0].startswith("s: read as public (shadow.corpus")


def test_a_user_is_added_up_if_all_trainings_know_theirs(tmp_path: Path) -> None:
    spec = spec_of(*EIGHT)
    ledger = planned(spec, EXAMPLES).model_copy(update={"most_of_a_user": 3})
    for name in ("one", "two"):
        training(tmp_path, name, *EIGHT, ledger=ledger)
    account = only(tmp_path)
    of_three = gaussian_epsilon(3 * math.sqrt(2) * MU, DELTA)
    assert account.everything_user(DELTA) == pytest.approx(of_three, rel=1e-4), "groups of three"
    assert account.released_user(DELTA) is None, "nothing was released"
    training(tmp_path, "three", *EIGHT)
    assert only(tmp_path).everything_user(DELTA) is None


def test_different_units_are_added_for_an_utterance() -> None:
    one = [Spending(Composition(mu=MU), "example")]
    assert together([*one, Spending(Composition(mu=MU), "user")], DELTA) == pytest.approx(
        gaussian_epsilon(math.sqrt(5) * MU, DELTA)
    ), "a user that loses an utterance changes twice"
    users = [Spending(Composition(mu=MU), "user")] * 2
    assert together(users, DELTA) == pytest.approx(composed(2)), "of a user"
    rng = np.random.default_rng(0)
    some = [Spending(Composition(mu=float(mu)), "example") for mu in rng.uniform(0.1, 2, 9)]
    exact = gaussian_epsilon(math.sqrt(sum(one.cost.mu**2 for one in some)), DELTA)
    assert together(some, DELTA) == pytest.approx(exact)
