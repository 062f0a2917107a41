"""ε of a whole search: many trials on the same private data cost more than the released one alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from edp.accounting.composition import compose, composition_of, composition_of_user
from edp.accounting.epsilon import epsilon_of
from edp.ledger import Ledger


def composed_epsilon(ledgers: Iterable[Ledger], delta: float) -> float:
    """Return ε of everything that a sweep's trials executed, each chosen in the light of the others (adaptively).

    Failed and stopped trials count with what they ran. No ledger records validation scores: the search must compute
    them on other data than the private. A plain SGD ledger on the private corpus makes the result infinite.

    Examples:
        >>> from edp.accounting.epsilon import epsilon
        >>> from edp.ledger import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 5, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1, "single_example": True}
        >>> trials = [planned_ledger(EDPSpec(z0=z0), **run) for z0 in (2.0, 3.0)]
        >>> [round(epsilon(trial, 1e-5), 2) for trial in trials], round(composed_epsilon(trials, 1e-5), 2)
        ([4.98, 3.12], 6.19)

    Raises:
        UserError: for a delta outside (0, 1).
    """
    return _epsilon_of(compose(composition_of(ledger) for ledger in ledgers), delta)


def composed_epsilon_user(ledgers: Iterable[Ledger], delta: float) -> float | None:
    """Return the same for one user (`epsilon_user`), or None if users are not known.

    Raises:
        UserError: for a delta outside (0, 1).
    """
    parts = [composition_of_user(ledger) for ledger in ledgers if ledger != Ledger()]
    known = [part for part in parts if part is not None]
    return _epsilon_of(compose(known), delta) if len(known) == len(parts) else None


_epsilon_of = lru_cache(maxsize=64)(epsilon_of)  # the Pareto page asks again with every refresh
