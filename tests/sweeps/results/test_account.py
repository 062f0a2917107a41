"""An account holds everything that was trained on a corpus, under whatever name, and composes it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweeps.store.activities import CHECKPOINT
from sweeps.store.same_corpus import CorpusComparison, KnownCorpus

from edp.accounting.composition import Composition
from edp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from edp.ledger import Ledger
from sweeps.config.spending import Spending, together
from sweeps.results.account import CorpusAccount, accounts
from sweeps.store.picks import Origin, Pick, write_pick
from sweeps.store.sweep import Sweep
from tests.support import studies, writers
from tests.support.spending import FULL, training
from tests.support.synthetic import sweep_of
from trainables.config import CorpusSpec
from trainables.corpora import generate, load_corpus
from trainables.corpora.types import Splits
from trainables.features.encoding import encode
from trainables.records.epochs import LEDGER, read_ledger, write_ledger
from trainables.training.checkpoint import NAME

DELTA = 5e-4
MU = gaussian_mu(8, DELTA)
EIGHT = ("edp.epsilon=8", "search.objectives=[ser]")


def composed(count: int) -> float:
    """The ε of so many Gaussian mechanisms that cost 8 each (Dong, Roth & Su 2022: their μ² add)."""
    return gaussian_epsilon(math.sqrt(count) * MU, DELTA)


def only(storage: Path, **about: Any) -> CorpusAccount:
    (account,) = [one for one in accounts(storage, **about) if "communication" in one.names]
    return account


def plan(storage: Path, name: str, *settings: str) -> Path:
    """The release of `search.plan: proxy`, whose search keeps the released configuration."""
    folder = training(storage, f"{name}-release", *settings)
    (storage / f"{name}-choice").mkdir()
    shutil.copy(folder / "config.yaml", storage / f"{name}-choice" / f"{name}-release.yaml")
    return folder


def test_two_plans_at_eight_each_are_12_7_together(tmp_path: Path) -> None:
    for name in ("one", "two"):
        plan(tmp_path, name, *EIGHT, *FULL)
    account = only(tmp_path)
    assert [row.epsilon(DELTA) for row in account.rows] == pytest.approx([8, 8], rel=1e-6)
    assert account.everything(DELTA) == account.released(DELTA) == pytest.approx(composed(2), rel=1e-6)
    assert f"{composed(2):.1f}" == "12.7"
    assert (account.delta, account.unit, account.uncounted) == (DELTA, "example", [])


@pytest.mark.slow
def test_a_sweep_counts_as_released_if_it_chose_what_was(tmp_path: Path) -> None:
    sweep_of(tmp_path, "looked", 3, *EIGHT, tracked=False)
    chose = sweep_of(tmp_path, "chose", 2, *EIGHT, tracked=False)
    account = only(tmp_path)
    assert account.released(DELTA) == 0
    assert account.everything(DELTA) == pytest.approx(composed(5), rel=1e-4)
    training(tmp_path, "final", *EIGHT, origin=Origin(sweep="chose", trial=1, epoch=4))
    account = only(tmp_path)
    assert {row.activity.name for row in account.rows if row.released} == {"chose", "train-final"}
    assert account.released(DELTA) == pytest.approx(composed(3), rel=1e-4)
    assert account.everything(DELTA) == pytest.approx(composed(6), rel=1e-4)
    seed = chose.folder / "confirm" / "1" / "seed-1"
    write_ledger(chose.trials()[0].ledger or Ledger(), seed)
    (seed / "config.yaml").touch()
    assert only(tmp_path).released(DELTA) == pytest.approx(composed(4), rel=1e-4), "its figures may have chosen"
    write_pick(
        Sweep(tmp_path, "looked"), Pick(trial=0, epoch=4, by="me", at="", limits={}, why="", model="models:/m/1")
    )
    assert only(tmp_path).released(DELTA) == only(tmp_path).everything(DELTA) == pytest.approx(composed(7), rel=1e-4)


@pytest.mark.slow
def test_what_has_no_epsilon_stands_apart_until_it_is_released(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "s", 1, *EIGHT, tracked=False)
    (sweep.trial_folder(0) / "attacks.json").write_text(json.dumps({"references": 4, "reference_training": "sgd"}))
    training(tmp_path, "loud", "edp.z0=0", "search.objectives=[ser]")
    plain = training(tmp_path, "plain", *EIGHT, ledger=Ledger(private=False))
    text = (plain / "config.yaml").read_text()
    (plain / "config.yaml").write_text(text.replace("method: edp", "method: sgd"))
    account = only(tmp_path)
    assert account.everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert account.without_privacy == [
        "s: baseline",
        "s: 4 reference models of 1 attack, trained without privacy, and a shadow model; their losses are kept, not "
        "their weights",
        "train-loud: 1 training whose noise guarantees nothing",
        "train-plain: training without privacy (sgd)",
    ]
    assert account.released(DELTA) == 0
    for name in ("train-plain", "train-loud"):
        assert only(tmp_path, registered=frozenset({name})).released(DELTA) == math.inf


@pytest.mark.slow
def test_a_lost_ledger_makes_the_total_a_lower_bound(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "s", 3, *EIGHT, tracked=False)
    (sweep.trial_folder(1) / LEDGER).unlink()
    account = only(tmp_path)
    assert account.everything(DELTA) == pytest.approx(composed(2), rel=1e-4)
    assert account.uncounted == ["s: the ledger of trial 1 is missing, broken or incomplete"]
    (sweep.folder / "study.db").unlink()
    assert only(tmp_path).everything(DELTA) == pytest.approx(composed(2), rel=1e-4), "the ledgers are there"
    assert "its study cannot be read" in only(tmp_path).uncounted[0]
    (sweep.folder / "recipe.yaml").write_text("broken: [")
    training(tmp_path, "final", *EIGHT)
    assert "cannot be read: " in only(tmp_path).uncounted[0]


@pytest.mark.slow
def test_a_training_that_goes_on_does_not_count_the_steps_that_it_keeps(tmp_path: Path) -> None:
    folder = training(tmp_path, "one", *EIGHT)
    assert CHECKPOINT == NAME
    (folder / CHECKPOINT).touch()
    assert only(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert only(tmp_path, going_on="train-one").everything(DELTA) == 0
    (folder / CHECKPOINT).unlink()
    assert only(tmp_path, going_on="train-one").everything(DELTA) == pytest.approx(8, rel=1e-4), "it begins anew"


@pytest.mark.slow
def test_a_training_that_was_left_has_cost_its_plan_and_one_that_goes_on_will_once(tmp_path: Path) -> None:
    folder = training(tmp_path, "one", *EIGHT)
    plan = read_ledger(folder)
    assert plan is not None
    write_ledger(Ledger().completed(plan), folder)  # killed before the first step
    assert only(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert only(tmp_path, going_on="train-one").everything(DELTA) == 0
    write_ledger(plan.until(1).completed(plan), folder)  # by Ctrl-C after an epoch, or killed in it
    assert only(tmp_path).everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert 0 < only(tmp_path, going_on="train-one").everything(DELTA) < 8, "no checkpoint: the epoch is lost"
    (folder / CHECKPOINT).touch()
    assert only(tmp_path, going_on="train-one").everything(DELTA) == 0


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
    (account,) = accounts(storage, wanted=KnownCorpus(mine(tmp_path, "mine", 0, 200)))
    assert set(account.names) == {"mine", "copy", "part", "other"}, "other shares with part, which shares with mine"
    assert account.everything(DELTA) == pytest.approx(composed(5), rel=1e-4)
    training(storage, "strange", *EIGHT, corpus=CorpusSpec(name="communication"))
    assert [len(one.rows) for one in accounts(storage)] == [5, 1]


@pytest.mark.slow
def test_a_corpus_whose_files_are_gone_is_compared_by_its_encoding_or_said_to_be_unknown(tmp_path: Path) -> None:
    storage = tmp_path / "runs"
    gone, here = mine(tmp_path, "gone", 0, 200), mine(tmp_path, "here", 100, 300)
    training(storage, "early", *EIGHT, corpus=gone)
    training(storage, "late", *EIGHT, corpus=here)
    splits: Splits = load_corpus(gone)
    assert gone.path is not None
    Path(gone.path).unlink()
    (account,) = accounts(storage, wanted=KnownCorpus(here))
    assert account.everything(DELTA) == pytest.approx(8, rel=1e-4)
    assert account.uncounted == ["train-early: its corpus gone is gone, and could not be compared with this one"]
    encode(splits, studies.RECIPE.model, storage / "cache" / "gone-0123456789ab")
    (account,) = accounts(storage, wanted=KnownCorpus(here))
    assert (len(account.rows), account.uncounted) == (2, [])
    assert CorpusComparison(storage / "cache").same(KnownCorpus(gone, "digest"), KnownCorpus(here, "digest"))


@pytest.mark.slow
def test_what_took_it_for_public_is_said(tmp_path: Path) -> None:
    sweep_of(tmp_path, "s", 1, *EIGHT, tracked=False)
    shadow = studies.RECIPE.shadow.corpus
    (account,) = accounts(tmp_path, wanted=KnownCorpus(shadow))
    assert account.rows == []
    assert account.without_privacy[0].startswith("s: read as public (shadow.corpus")


def test_a_user_is_added_up_if_all_trainings_know_theirs(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = training(tmp_path, name, *EIGHT)
        ledger = read_ledger(folder)
        assert ledger is not None
        assert only(tmp_path).everything_user(DELTA) is None
        write_ledger(ledger.model_copy(update={"most_of_a_user": 3}), folder)
    account = only(tmp_path)
    of_three = gaussian_epsilon(3 * math.sqrt(2) * MU, DELTA)
    assert account.everything_user(DELTA) == pytest.approx(of_three, rel=1e-4), "groups of three"
    assert account.released_user(DELTA) is None, "nothing was released"


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
