"""ε of a whole sweep: trying many configurations on the same private data costs more than the released one alone.

| the sweep | its ε |
|---|---|
| any searcher, early stopping, failed trials | `composed_epsilon`: all that was executed, composed |
| a secret random number of i.i.d. trials, only the best released | `random_stopping_epsilon` |
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from edp.accounting.composition import Composition, check_delta, compose, composition_of, composition_of_user
from edp.accounting.epsilon import epsilon_of
from edp.accounting.rdp import ORDERS, event_of
from edp.ledger import Ledger
from edp.spec import UserError


def composed_epsilon(ledgers: Iterable[Ledger], delta: float) -> float:
    """Return ε of everything that a sweep's trials executed, each chosen in the light of the others (adaptively).

    Failed and stopped trials count with what they ran. No ledger records validation scores: the search must compute
    them on other data than the private. A plain SGD ledger on the private corpus makes the result infinite; leave it
    out only with a remark that the figure covers the private trials alone.

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


# Cached, because the Pareto page asks again with every refresh.
_epsilon_of = lru_cache(maxsize=64)(epsilon_of)


def random_stopping_epsilon(base: Ledger, delta: float, mean: float, shape: float) -> float:
    """Return ε of releasing only the best of a secret random number of trials.

    Papernot & Steinke (2022), Theorem 2 (Theorem 6 for the Poisson distribution), through dp_accounting. It holds if
    the number is drawn once and kept secret, every trial draws its configuration independently from one fixed
    distribution, and nothing of the other trials leaves the sweep: no table, no curve, no front.

    Examples:
        >>> from edp.accounting.epsilon import epsilon
        >>> from edp.ledger import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 5, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1, "single_example": True}
        >>> one = planned_ledger(EDPSpec(z0=2.0), **run)
        >>> round(epsilon(one, 1e-5), 2), round(random_stopping_epsilon(one, 1e-5, mean=10, shape=1), 2)
        (4.98, 9.48)
        >>> round(composed_epsilon([one] * 10, 1e-5), 2)  # ten of them, all shown
        20.68

    Args:
        base: a trial with the *least* noise that the distribution of configurations allows.
        mean: expected number of trials.
        shape: of the truncated negative binomial distribution of that number: 1 is geometric, 0 logarithmic,
            and infinity Poisson.

    Raises:
        UserError: where the theorem does not apply, with the reason.
    """
    check_delta(delta)
    cost = composition_of(base)
    if cost.mu_if_always_drawn > 1e150:
        raise UserError("base has an infinite epsilon of its own, which no random stopping makes finite")
    if not shape >= 0:
        raise UserError(f"shape = {shape:g} is not allowed: it must be at least 0 (1 is geometric, inf is Poisson)")
    if not 1 <= mean < math.inf:
        raise UserError(f"mean = {mean:g} is not allowed: the expected number of trials is at least 1 and finite")
    if cost == Composition():
        return 0.0
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(event_of(cost), mean, shape))
    return float(accountant.get_epsilon(delta))
