"""The front is what nothing dominates, and how it is written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edp.spec import EDPSpec
from sweeps.config.parts import objective_values
from sweeps.results.front import pareto_front
from sweeps.results.front_figure import front_svg
from sweeps.store.records import Point, TrialRecord
from sweeps.text.figures import epsilon_cell, epsilon_text, number, privacy_statement, relative_change
from tests.support.studies import RECIPE
from trainables.config import CorpusSpec

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
    values = {t.number: objective_values(OBJECTIVES, t.metrics) for t in trials}

    def beaten(one: int) -> bool:
        return any(
            all(a <= b for a, b in zip(values[o], values[one], strict=True)) and values[o] != values[one]
            for o in values
        )

    assert front == {number for number in values if not beaten(number)}


def test_failed_and_running_trials_are_never_on_the_front() -> None:
    trials = [
        trial(0, 0.5, 0.5, 10),
        trial(1, 0.1, 0.1, 1, state="failed"),
        trial(2, 0.1, 0.1, 1, state="running"),
    ]
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


def test_relative_changes_are_those_of_the_papers_table() -> None:
    assert relative_change(0.9, 1.0) == pytest.approx(-10)
    assert math.isnan(relative_change(0.9, 0.0))


def test_objectives_of_a_missing_metric_are_nan_and_of_an_infinite_epsilon_infinite() -> None:
    values = objective_values(OBJECTIVES, {"ser": 0.1, "epsilon": math.inf})
    assert values[0] == 0.1
    assert math.isnan(values[1])
    assert values[2] == math.inf


@pytest.mark.slow
def test_two_objectives_have_a_front_and_a_colour_only_where_epsilon_varies() -> None:
    two = ("ser", "mia_auc")
    equal = [trial(0, 0.1, 0.9, 8.0), trial(1, 0.2, 0.6, 7.99995), trial(2, 0.3, 0.7, 7.9)]
    front = pareto_front(equal, two)
    assert [p.trial for p in front] == [0, 1], "the last costs less, which is no objective"
    assert "log10 ε" not in front_svg([p for t in equal for p in t.points], front, two, None)
    early = [*equal, trial(3, 0.5, 0.5, 2.0)]
    drawn = front_svg([p for t in early for p in t.points], pareto_front(early, two), two, None)
    for label in ("log10 ε (honest)", "SER, validation (lower is better)", "MIA AUC"):
        assert label in drawn


@pytest.mark.slow
def test_the_picture_of_the_front_names_its_points_and_draws_what_is_infinite() -> None:
    trials = [trial(20, 0.1, 0.9, math.inf), trial(21, 0.2, 0.6, 1e2), trial(22, 0.95, 0.95, 1e7)]
    front = pareto_front(trials, OBJECTIVES)
    points = [p for t in trials for p in t.points]
    drawn = front_svg(points, front, OBJECTIVES, {"ser": 0.08, "mia_auc": 0.95}, front[0])
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert [f">{p.name}<" in drawn for p in points] == [True, True, False], "the last one is dominated"
    assert "#d62728" in drawn, "the chosen one is ringed"
    assert "#d62728" not in front_svg(points, front, OBJECTIVES, None)
