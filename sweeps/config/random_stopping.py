"""A sweep whose own cost is close to one trial's: a secret number of trials; only the best one is released.

Papernot and Steinke (2022): draw the number of trials from a stated distribution and keep it secret. Draw the trials'
configurations independently from one fixed distribution, each at the same target ε, and release nothing of the others.
Then the ε of the best trial grows by a small factor instead of with the number of trials. For this reason such a sweep
has no table, no curve and no front: trials are neither shown nor tracked, and the models of all but the best are
deleted. While the search runs, the number is in the sweep's own folder, which must be kept private. The bound does not
apply to a reader who knows the number of trials, or the best one's number among them, so
`sweeps.store.sweep.Sweep.release` deletes both.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from sweeps.config.parts import BudgetSpec, FixedEDP, SearchSpec

SHAPE = 1.0
"""Shape of the truncated negative binomial distribution of the number of trials; with 1 it is geometric."""


def draw_number(mean: float) -> int:
    """Draw the number of trials: geometric with the given mean, at least 1, from the operating system's entropy."""
    return int(np.random.default_rng().geometric(1 / mean))


def check_random_stopping(edp: FixedEDP, search: SearchSpec, space: Container[str], budget: BudgetSpec | None) -> None:
    """Raise for a recipe that the bound of Papernot and Steinke (2022) does not cover.

    Raises:
        ValueError: with the setting.
    """
    if edp.epsilon is None:
        raise ValueError(
            "search.sampler = random_stopping: its bound requires trials of one fixed cost; "
            "give edp.epsilon, the target of every trial"
        )
    if search.points_to_evaluate:
        raise ValueError("search.points_to_evaluate: trials of random_stopping are independent draws; allowed: none")
    if search.objectives != ("ser",):
        # mia_auc reads the training utterances once more, without noise, and ε is the same for all trials.
        raise ValueError(
            "search.sampler = random_stopping: its only objective must depend on the training utterances through "
            "the noisy model alone; allowed: search.objectives=[ser]"
        )
    if edp.sampling != "shuffle" or "edp.sampling" in space:
        # Trials with shuffled epochs and one ε are the same mechanism. With Poisson sampling, trials of one ε at δ
        # differ in their privacy profiles, from which the bound is computed, and the worst may be inside a range.
        raise ValueError(
            "search.sampler = random_stopping: its bound is that of the worst trial, which is known "
            "for shuffled epochs only; allowed: edp.sampling=shuffle"
        )
    if search.until is not None:
        raise ValueError(
            "search.until: it may end a secret number of trials early, which the bound of random_stopping does not "
            "cover; allowed: null"
        )
    if budget is not None:
        raise ValueError(
            "budget: it may end a secret number of trials early, which the bound of random_stopping does not cover; "
            "allowed: none"
        )
    if search.trials < 2:
        raise ValueError(f"search.trials = {search.trials}: the mean of a secret number of trials; allowed: at least 2")
