"""A trial is stopped where others had more for no more cost, beyond noise, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.config.parts import StopSpec
from sweeps.engine.early_stopping import Stopper, curves_in, rung_point
from trainables.records.epochs import write_curve
from trainables.records.pareto import TRADE_OFF

SPEC = StopSpec(grace_epochs=2, margin=0.05)


def stopper(*curves: list[tuple[float, float, float]], epochs: int = 8) -> Stopper:
    return Stopper(SPEC, epochs, curves=dict(enumerate(curves)))


def curve(ser: float, auc: float, cost: float) -> list[tuple[float, float, float]]:
    return [(1.0, 0.5, cost), (ser, auc, cost + 0.3)]


GOOD = [curve(0.2 + i / 10, 0.52, 3 + i / 10) for i in range(4)]


def test_at_one_epsilon_what_is_still_to_be_spent_counts_and_what_z0_was_solved_to_within_does_not() -> None:
    def point(epsilon: float, objectives: tuple[str, ...] = ("ser", "mia_auc")) -> tuple[float, ...]:
        metrics = {
            "valid_ser": 0.3,
            "valid_mia_auc": 0.52,
            "valid_mia_tpr_at_1pct_fpr": 0.02,
            "epsilon_executed": epsilon,
        }
        return tuple(rung_point(metrics, objectives))

    assert point(8.0) == point(7.9999) == (0.3, 0.52, 0.9)
    assert point(2.0)[2] < point(8.0)[2]
    assert point(10.0, ("ser", "mia_auc", "log10_epsilon")) == (0.3, 0.52, 1.0)
    assert point(10.0, ("ser", "mia_tpr_at_1pct_fpr")) == (0.3, 0.02, 1.0)


def feed(made: Stopper, trial: int, points: list[tuple[float, float, float]]) -> list[str | None]:
    return [made.after_epoch(trial, epoch, point) for epoch, point in enumerate(points, start=1)]


def test_what_learns_nothing_at_an_epsilon_that_others_use_is_stopped_with_the_reason() -> None:
    hopeless = [(1.0, 0.53, 6.0), (0.99, 0.53, 6.3), (0.99, 0.53, 6.5)]
    assert feed(stopper(*GOOD), 9, hopeless)[:2] == [None, "after 2 epochs dominated with a margin by trial 0"]


def test_a_smaller_epsilon_or_auc_is_a_reason_to_go_on() -> None:
    assert feed(stopper(*GOOD), 9, [(1.0, 0.53, 1.0), (0.99, 0.53, 1.3)]) == [None, None]
    assert feed(stopper(*GOOD), 9, [(1.0, 0.53, 6.0), (0.99, 0.50, 6.3)]) == [None, None]


def test_a_lead_within_the_margin_stops_nobody() -> None:
    crowd = [[(1.0, 0.5, 3.0), (0.20 + i / 1000, 0.52, 3.3)] for i in range(4)]
    assert feed(stopper(*crowd), 9, [(1.0, 0.5, 3.0), (0.205, 0.52, 3.3)]) == [None, None]


def test_few_trials_at_a_rung_judge_nobody() -> None:
    hopeless = [(1.0, 0.53, 6.0), (0.99, 0.53, 6.3)]
    assert feed(stopper(*GOOD[:2]), 9, hopeless) == [None, None]


def test_nobody_is_judged_between_rungs_or_at_the_end() -> None:
    made = stopper(*[c * 4 for c in GOOD], epochs=8)
    found = feed(made, 9, [(1.0, 0.55, 9.0)] * 8)
    assert [epoch for epoch, reason in enumerate(found, start=1) if reason] == [2, 4]


def test_what_an_epoch_earlier_had_counts_as_no_more_cost_and_what_one_later_had_does_not() -> None:
    late = [[(1.0, 0.6, 3.0), (1.0, 0.6, 3.3), (0.1, 0.5, 3.4)] for _ in range(4)]
    assert feed(stopper(*late), 9, [(1.0, 0.6, 6.0), (1.0, 0.6, 6.3)]) == [
        None,
        "after 2 epochs dominated with a margin by trial 0",
    ]
    assert feed(stopper(*late), 9, [(1.0, 0.6, 3.0), (0.9, 0.6, 3.3)]) == [None, None]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 9).map(float)] * 3), min_size=4, max_size=12))
def test_a_trial_of_the_first_front_is_never_stopped(points: list[tuple[float, float, float]]) -> None:
    made = Stopper(StopSpec(grace_epochs=1, margin=0.0), 8)
    reasons = [made.after_epoch(i, 1, point) for i, point in enumerate(points)]
    for i, reason in enumerate(reasons):
        beaten = any(all(a <= b for a, b in zip(p, points[i], strict=True)) and p != points[i] for p in points[:i])
        assert reason is None or beaten


def test_a_stopper_that_is_started_again_knows_what_the_trials_have_reported(tmp_path: Path) -> None:
    for number, curve in enumerate([*GOOD, [(1.0, 0.53, 6.0)]]):
        write_curve(
            [{"valid_ser": ser, "valid_mia_auc": auc, "epsilon_executed": 10**cost} for ser, auc, cost in curve],
            tmp_path / str(number),
        )
    made = Stopper(StopSpec(grace_epochs=2, margin=0.1), 8, 1, curves_in(tmp_path, TRADE_OFF))
    assert made.after_epoch(len(GOOD), 2, (0.99, 0.53, 6.3)) is not None


def test_a_trial_that_goes_on_from_a_checkpoint_is_judged_by_its_whole_curve() -> None:
    made = Stopper(SPEC, 8, curves=dict(enumerate(GOOD)) | {9: [(1.0, 0.53, 6.0), (0.3, 0.53, 6.2)]})
    assert made.after_epoch(9, 2, (0.99, 0.53, 6.3)) is not None, "the epoch is run again, with another end"
    assert made.after_epoch(10, 2, (0.99, 0.53, 6.3)) is None, "its first epoch is not known"


def test_a_trial_is_compared_with_those_alone_that_choose_it() -> None:
    bad = (0.99, 0.53, 6.3)
    made = stopper(*GOOD)
    made.after_epoch(9, 1, (1.0, 0.53, 6.0))
    assert made.after_epoch(9, 2, bad, {0, 1}) is None, "too few"
    assert made.after_epoch(9, 2, bad, {0, 1, 2, 3}) is not None
