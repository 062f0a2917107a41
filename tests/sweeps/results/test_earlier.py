"""A search that begins at the good points of an earlier sweep says which, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.loading import load_recipe
from sweeps.results.earlier import begun_from
from sweeps.results.snapshot import Snapshot
from tests.support import writers
from tests.support.studies import METRICS, sweep, sweep_of, trials
from trainables.corpora import generate
from trainables.records.job import EpochResult, TrialResult

OTHER = "{C: null, z0: null, decay: null, tau: null, training.learning_rate: {log_uniform: [0.001, 0.1]}}"


def ended(storage: Path, *settings: str, figures: tuple[tuple[float, float], ...] = ((0.5, 9.0),)) -> list[dict]:
    """The configurations of an earlier sweep whose trials have these SER and ε."""
    made, recipe = sweep(storage, "search.sampler=random", "search.points_to_evaluate=[]", *settings)
    search, asked = trials(made, recipe), []
    for number, (ser, epsilon) in enumerate(figures):
        suggestion: Any = search.ask(str(number))
        asked.append(suggestion.params)
        measured = {"ser": ser, "valid_ser": ser, "valid_mia_auc": 0.5, "epsilon": epsilon}
        told = METRICS | measured
        search.tell(str(number), TrialResult(told, Ledger(), {}, (EpochResult(10, told),), None), Ledger(), [])
    return asked


@pytest.mark.slow
def test_the_front_comes_first_then_what_it_alone_dominates(tmp_path: Path) -> None:
    had = ended(tmp_path, figures=((0.5, 9.0), (0.9, 9.5), (0.3, 20.0), (0.6, 9.2)))
    settings = begun_from(tmp_path, "one", "quickstart_paper", ["search.trials=8"])
    points = load_recipe("quickstart_paper", settings)[1].search.points_to_evaluate
    assert points is not None
    assert [point["z0"] for point in points] == [had[i]["z0"] for i in (0, 2, 3, 1)]
    few = load_recipe("quickstart_paper", begun_from(tmp_path, "one", "quickstart_paper", ["search.trials=4"]))[1]
    assert few.search.points_to_evaluate == points[:2], "half of the trials"


@pytest.mark.slow
def test_what_the_points_cost_stands_beside_the_choice(tmp_path: Path) -> None:
    mine = writers.jsonl(generate("communication", 120, seed=1), tmp_path)
    ended(tmp_path, f"corpus={{name: mine, path: {mine}}}")
    settings = begun_from(tmp_path, "one", "quickstart_paper", [])
    begun = sweep_of(load_recipe("quickstart_paper", settings)[1], tmp_path / "other")
    words = Snapshot(begun).choice()
    assert "the search began at points of sweep one (if utterances of mine are private, its ε of " in words
    assert "for them belongs to this choice)" in words


@pytest.mark.parametrize(
    ("figures", "settings", "line"),
    [
        ((), [], "from = one: the sweep has no measured trial"),
        (((0.5, 9.0),), ["edp={C: 1, z0: 0.1, decay: none}", f"space={OTHER}"], "none of its"),
    ],
)
def test_a_sweep_that_nothing_can_begin_at_is_refused(
    tmp_path: Path, figures: tuple, settings: list[str], line: str
) -> None:
    ended(tmp_path, figures=figures)
    with pytest.raises(UserError, match=line):
        begun_from(tmp_path, "one", "quickstart_paper", settings)
    with pytest.raises(UserError, match="name = 'two': no sweep of this name"):
        begun_from(tmp_path, "two", "quickstart_paper", [])
