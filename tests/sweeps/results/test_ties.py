"""What hangs on noise is marked, and what does not is not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sweeps.results.front import gap, hollow, pareto_front, ties
from sweeps.store.records import Point, TrialRecord
from tests.support.studies import RECIPE
from trainables.records.pareto import SelectionFigures, objective_values

OBJECTIVES = ("ser", "mia_auc", "log10_epsilon")


def trial(number: int, ser: float, auc: float, epsilon: float, *, half: float = 0.02) -> TrialRecord:
    """A trial whose SER and MIA AUC have intervals of ± `half`."""
    metrics = {"ser": ser, "mia_auc": auc, "epsilon": epsilon, "epsilon_paper": epsilon, "delta": 5e-4}
    for name in ("ser", "mia_auc"):
        metrics |= {f"{name}_lower": metrics[name] - half, f"{name}_upper": metrics[name] + half}
    point = Point(number, 4, {}, metrics, None, Path(str(number)), None, RECIPE)
    return TrialRecord(number, "complete", {}, metrics, None, None, None, RECIPE, (point,))


def tied(*trials: TrialRecord) -> dict[str, list[str]]:
    return ties(list(trials), pareto_front(list(trials), OBJECTIVES), OBJECTIVES)


def test_the_interval_of_a_difference_is_that_of_independent_estimates() -> None:
    one, other = trial(0, 0.30, 0.5, 1).metrics, trial(1, 0.26, 0.5, 1).metrics
    assert gap(SelectionFigures(one), SelectionFigures(other), "ser") == pytest.approx(
        (0.04 - 0.02 * math.sqrt(2), 0.04 + 0.02 * math.sqrt(2))
    )
    lopsided = {"ser": 0.1, "ser_lower": 0.09, "ser_upper": 0.14}
    low, high = gap(SelectionFigures(lopsided), SelectionFigures(lopsided), "ser")
    assert (low, high) == pytest.approx((-math.hypot(0.01, 0.04), math.hypot(0.04, 0.01)))


def test_a_dominated_trial_at_the_same_epsilon_is_tied_where_the_lead_is_noise() -> None:
    assert tied(trial(0, 0.30, 0.50, 8), trial(1, 0.31, 0.51, 8)) == {"1": ["0"]}
    assert tied(trial(0, 0.30, 0.50, 8), trial(1, 0.40, 0.51, 8)) == {}, "one clear lead is enough"


def test_a_trial_is_on_the_front_by_noise_where_another_costs_less_and_is_not_clearly_worse() -> None:
    assert tied(trial(0, 0.30, 0.50, 800), trial(1, 0.31, 0.50, 8)) == {"0": ["1"]}
    assert tied(trial(0, 0.20, 0.50, 800), trial(1, 0.31, 0.50, 8)) == {}, "it buys something with its epsilon"


@pytest.mark.parametrize(
    ("auc", "other", "expected"),
    [
        (0.52, 0.53, {"0"}),  # worse in SER and ε, and better in an AUC by less than its noise
        (0.52, 0.60, set()),  # a clear lead
        (0.45, 0.49, None),  # both are guessing: dominated
    ],
)
def test_what_a_lead_in_leakage_within_noise_alone_puts_on_the_front_is_hollow(
    auc: float, other: float, expected: set[str] | None
) -> None:
    trials = [trial(0, 0.8, auc, 12), trial(1, 0.1, other, 8), trial(2, 0.05, 0.62, 20)]
    front = pareto_front(trials, OBJECTIVES)
    assert {point.name for point in front} == ({"1", "2"} if expected is None else {"0", "1", "2"})
    assert hollow(front, OBJECTIVES) == (expected or set())


def test_an_attack_that_does_worse_than_guessing_is_not_below_guessing() -> None:
    for auc in (0.3, 0.5):
        metrics = trial(0, 0.3, auc, 8).metrics
        assert objective_values(OBJECTIVES, SelectionFigures(metrics))[1] == 0.5
        assert metrics["mia_auc"] == auc
    low, high = gap(
        SelectionFigures(trial(0, 0.3, 0.44, 8).metrics), SelectionFigures(trial(1, 0.3, 0.53, 8).metrics), "mia_auc"
    )
    assert (low, high) == pytest.approx((-0.03 - 0.02, -0.03 + 0.02)), "the interval of the first is a point at 0.5"
    assert math.isnan(objective_values(("mia_auc",), SelectionFigures({}))[0])
