"""A sweep whose own cost is close to one trial's: a secret number of trials, of which only the best is released.

Papernot and Steinke (2022): draw the number of trials from a stated distribution and keep it secret. Draw candidates
independently from one fixed distribution, each at the same target ε, and release nothing of the others. Then the ε of
the best grows by a small factor instead of with the number of trials. For this reason such a sweep has no table, no
curve and no front: candidates are neither shown nor tracked, and their models are deleted. The number is in the sweep's
own folder, which its holder must keep private.
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
        ValueError: naming the setting.
    """
    if edp.epsilon is None:
        raise ValueError(
            "search.sampler = random_stopping: its bound needs candidates at one fixed cost; "
            "give edp.epsilon, the target of every candidate"
        )
    if search.points_to_evaluate:
        raise ValueError(
            "search.points_to_evaluate: candidates of random_stopping are independent draws; allowed: none"
        )
    if search.objectives != ("ser",):
        # mia_auc reads the training utterances once more, without noise, and ε is the same for all.
        raise ValueError(
            "search.sampler = random_stopping needs one objective that knows the training utterances through "
            "the noisy model alone; allowed: search.objectives=[ser]"
        )
    if edp.sampling != "shuffle" or "edp.sampling" in space:
        # Shuffled candidates of one ε are one and the same mechanism. Poisson sampled ones of one ε at δ differ in
        # their Rényi divergences, which the bound is made of, and the worst may lie inside a range.
        raise ValueError(
            "search.sampler = random_stopping: its bound is that of the worst candidate, which is known "
            "with shuffled epochs only; allowed: edp.sampling=shuffle"
        )
    if budget is not None:
        raise ValueError(
            "budget: when it is spent, a secret number of candidates would be cut short, which the bound of "
            "random_stopping does not cover; allowed: none"
        )
    if search.trials < 2:
        raise ValueError(f"search.trials = {search.trials}: the mean of a secret number of trials; allowed: at least 2")
