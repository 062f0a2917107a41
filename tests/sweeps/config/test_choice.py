"""One sentence says what chose a configuration, and whether an ε covers that."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards.pareto.data import snapshot
from dashboards.pareto.parts import details
from edp.spec import UserError
from sweeps.config.choice import GIVEN, chosen_in, chosen_on, holds_for
from sweeps.config.parts import Objective, SearchSpec
from sweeps.engine.jobs.train import _choice
from sweeps.registry.card import model_card, privacy_tags
from sweeps.registry.pick import Wanted, pick_point
from sweeps.results.snapshot import Snapshot
from sweeps.store.picks import Origin, Pick, write_pick
from tests.support import studies, writers
from tests.support.synthetic import sweep_of
from tests.support.tiny import spec
from trainables.corpora import generate


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (SearchSpec(), "chosen by validation SER and MIA AUC of the private corpus, which no ε covers"),
        (
            SearchSpec(objectives=("ser", "mia_tpr_at_1pct_fpr")),
            "chosen by validation SER and MIA TPR at 1 % FPR of the private corpus, which no ε covers",
        ),
        (
            SearchSpec(objectives=("ser",)),
            "chosen by validation SER of the private corpus: the ε of all trainings together covers the choice for "
            "training utterances, no ε does for validation utterances",
        ),
    ],
)
def test_what_reads_training_utterances_without_noise_is_covered_by_no_epsilon(search: SearchSpec, said: str) -> None:
    assert chosen_in(search) == said


def test_a_limit_on_leakage_chooses_too() -> None:
    alone: tuple[Objective, ...] = ("ser",)
    assert chosen_in(SearchSpec(objectives=alone), limits=["mia_auc"]).endswith("which no ε covers")


def test_the_card_says_it_in_the_line_of_the_guarantee() -> None:
    metrics = {"ser": 0.1, "mia_auc": 0.5, "epsilon": 8.0, "epsilon_paper": 9.0, "delta": 5e-4}
    choice = chosen_in(SearchSpec())
    private = spec(edp={"reproducible_noise": None})
    card = model_card(private, metrics, {}, 12.7, None, "train", 100, choice)
    (line,) = (one for one in card.splitlines() if one.startswith("- Privacy: "))
    assert line.endswith(f"; the configuration was {choice}.")
    assert "Chosen among" not in card, "the ε of all trainings is not the price of choosing"
    assert privacy_tags(private, metrics, 12.7, choice)["choice"] == choice


def test_a_final_training_says_whom_its_epsilon_holds_for(tmp_path: Path) -> None:
    mine = writers.jsonl(generate("video", 60, seed=1), tmp_path / "mine")
    others = writers.jsonl(generate("video", 60, seed=2), tmp_path / "others")
    sweep, recipe = studies.sweep(tmp_path / "runs", f"corpus.path={mine}", "corpus.name=mine")
    origin, own = Origin(sweep=sweep.name, trial=0, epoch=1), recipe.trial({"C": 1.0, "z0": 1.0})
    other = own.model_copy(update={"corpus": own.corpus.model_copy(update={"path": str(others), "name": "others"})})
    runs = tmp_path / "runs"
    here = chosen_in(recipe.search)
    assert _choice(origin, own, runs, with_valid=False) == here
    assert _choice(origin, own, runs, with_valid=True) == f"{here}; {holds_for(True)}"
    assert "training utterances alone" in holds_for(True)
    assert _choice(origin, other, runs, with_valid=False) == chosen_on("mine")
    assert _choice(origin, other, runs, with_valid=True).endswith(
        "holds for the training and the validation utterances"
    )
    assert _choice(None, own, runs, with_valid=False) == GIVEN
    assert "if figures of the validation utterances chose" in _choice(None, own, runs, with_valid=True)
    plain = own.model_copy(update={"training": own.training.model_copy(update={"method": "sgd"})})
    assert _choice(origin, plain, runs, with_valid=True) == here, "there is no ε to speak of"
    (sweep.folder / "recipe.yaml").write_text("corpus: 1\n")
    with pytest.raises(UserError):
        _ = type(sweep).existing(runs, sweep.name).recipe
    assert "cannot be read" in _choice(origin, own, runs, with_valid=False)


def test_the_limits_of_a_pick_chose_the_settings_of_its_training(tmp_path: Path) -> None:
    sweep, recipe = studies.sweep(tmp_path / "runs", "search.objectives=[ser]")
    origin, own = Origin(sweep=sweep.name, trial=0, epoch=1), recipe.trial({"C": 1.0, "z0": 1.0})
    assert "the ε of all trainings together covers" in _choice(origin, own, tmp_path / "runs", with_valid=False)
    write_pick(sweep, Pick(trial=0, epoch=1, by="me", at="now", limits={"mia_auc": 0.55}, why="the lowest"))
    assert _choice(origin, own, tmp_path / "runs", with_valid=False).endswith("which no ε covers")


@pytest.mark.slow
def test_the_limits_of_recipe_pick_and_page_are_said_beside_the_guarantee(tmp_path: Path) -> None:
    by_ser = "search.objectives=[ser]"
    plain = Snapshot(sweep_of(tmp_path / "plain", "one", 4, by_ser))
    limited = Snapshot(sweep_of(tmp_path / "limited", "one", 4, by_ser, "search.limits={mia_auc: 0.9}", tracked=False))
    assert "the ε of all trainings together covers" in plain.choice()
    assert limited.choice().endswith("which no ε covers")
    assert limited.cost_line.endswith("which no ε covers")
    page = snapshot(plain.sweep)
    shown = [str(details(page, page.front[0], None, limits)) for limits in ({}, {"mia_auc": 0.9})]
    assert ["which no ε covers" in words for words in shown] == [False, True]
    pick_point(plain, {"mia_auc": 0.9}, Wanted(tmp_path / "picked.yaml"))
    assert "which no ε covers" in (tmp_path / "picked.yaml").read_text()
