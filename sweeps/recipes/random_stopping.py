"""A secret number of trials, of which one is released: what such a search may not have."""

from __future__ import annotations

from collections.abc import Container

from sweeps.recipes.parts import BudgetSpec, FixedEDP, SearchSpec


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
