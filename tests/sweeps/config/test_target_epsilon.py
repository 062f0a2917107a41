"""ε of a trial whose unit are users is known before it starts, from their number."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edp.accounting.epsilon import epsilon, epsilon_user
from edp.accounting.gaussian import gaussian_epsilon
from edp.spec import UserError
from sweeps.config.target_epsilon import planned, schedule_of
from tests.support.tiny import spec
from trainables.config import TrialSpec


def group_by_user(batch_size: int | str, **edp: Any) -> TrialSpec:
    training = {"method": "dpsgd", "batch_size": batch_size, "epochs": 4}
    return spec(training=training, edp={"unit": "user", "z0": 2.0, "reproducible_noise": None, **edp})


@pytest.mark.parametrize("batch_size", [20, "full"])
def test_it_is_planned_for_users(batch_size: int | str) -> None:
    steps, at_once = (5, 20) if batch_size == 20 else (1, 100)
    plan = schedule_of(group_by_user(batch_size), 100)
    rate = at_once / 100
    assert plan == {"micro_batches": at_once, "steps_per_epoch": steps, "rate": rate, "single_example": False}
    ledger = planned(group_by_user(batch_size), 100)
    assert epsilon(ledger, 5e-4) == epsilon_user(ledger, 5e-4) == gaussian_epsilon(math.sqrt(4) / 2, 5e-4)


def test_more_users_a_step_than_there_are_is_refused_in_their_name() -> None:
    with pytest.raises(UserError, match=r"training\.batch_size = 20: the corpus has 19 users to train on"):
        schedule_of(group_by_user(20), 19)
