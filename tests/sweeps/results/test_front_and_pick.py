"""The front is what nothing dominates, and how it is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edp.spec import EDPSpec
from sweeps.results.front import pareto_front
from sweeps.store.records import Point, TrialRecord
from sweeps.text.figures import epsilon_cell, epsilon_text, number, privacy_statement
from tests.support.studies import RECIPE
from trainables.config import CorpusSpec
from trainables.records.pareto import SelectionFigures, objective_values

OBJECTIVES = ("ser", "mia_auc", "log10_epsilon")


def trial(number: int, ser: float, auc: float, epsilon: float, state: str = "complete") -> TrialRecord:
    metrics = {"ser": ser, "mia_auc": auc, "epsilon": epsilon, "epsilon_paper": epsilon / 4, "delta": 5e-4}
    params: dict[str, Any] = {"C": 1.0, "z0": 0.1, "decay": "none", "tau": 0.0}
    point = Point(number, 4, params, metrics, None, Path(str(number)), None, RECIPE)
    return TrialRecord(number, state, params, metrics, None, None, None, RECIPE, (point,))


points = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1e-3, 1e20))


@given(st.lists(points, max_size=30))
def test_the_front_is_exactly_what_no_other_trial_dominates(found: list[tuple[float, float, float]]) -> None:
    trials = [trial(i, *point) for i, point in enumerate(found)]
    front = {p.trial for p in pareto_front(trials, OBJECTIVES)}
    values = {t.number: objective_values(OBJECTIVES, SelectionFigures(t.metrics)) for t in trials}

    def beaten(one: int) -> bool:
        return any(
            all(a <= b for a, b in zip(values[o], values[one], strict=True)) and values[o] != values[one]
            for o in values
        )

    assert front == {number for number in values if not beaten(number)}


def test_failed_and_running_trials_are_never_on_the_front() -> None:
    trials = [trial(0, 0.5, 0.5, 10), trial(1, 0.1, 0.1, 1, state="failed"), trial(2, 0.1, 0.1, 1, state="running")]
    assert [p.trial for p in pareto_front(trials, OBJECTIVES)] == [0]


def test_a_large_epsilon_is_labelled_wherever_it_is_written() -> None:
    assert epsilon_text(9_999) == "9999"
    assert "no formal guarantee" in epsilon_text(1e4)
    assert "no formal guarantee" in epsilon_text(math.inf)
    assert "†" in epsilon_cell(1e5)
    assert "†" not in epsilon_cell(8.0)


def test_figures_have_no_exponent_below_ten_thousand_and_a_guarantee_is_rounded_to_the_safe_side() -> None:
    assert [number(v) for v in (0.01234, 8.0, 99.94, 99.96, 1002.16, math.inf)] == [
        "0.0123",
        "8",
        "99.9",
        "100",
        "1002",
        "∞",
    ]
    edp = EDPSpec(C=1.0, z0=1.0, delta=5e-4)
    for epsilon, said in ((8.0, 8.0), (8.00001, 8.001), (0.123401, 0.1235), (749.92, 750.0)):
        assert privacy_statement({"epsilon": epsilon}, edp, CorpusSpec(name="atis")).startswith(
            f"({said:g}, 0.0005)-DP"
        )
