"""ε of a whole sweep: trying many configurations on the same private data costs more than the released one alone.

| the sweep | its ε |
|---|---|
| any searcher, early stopping, failed trials | `composed_epsilon`: all that was executed, composed |
| a secret random number of i.i.d. trials, only the best released | `random_stopping_epsilon` |
| the same on secret samples of the data, then a release on all of it | `subset_epsilon` |
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
    _check_distribution(mean, shape)
    if cost == Composition():
        return 0.0
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(event_of(cost), mean, shape))
    return float(accountant.get_epsilon(delta))


def subset_epsilon(z: float, z_release: float, delta: float, mean: float, shape: float, rate: float) -> float:
    """Return ε of a search on samples of the data together with a release, on all data, of its best configuration.

    Koskela & Kulkarni (2023): each candidate sees a Poisson sample, so that it costs little; the best configuration of
    a secret random number of them is trained once more on all data, and that model is released. A candidate is a
    Gaussian mechanism of noise multiplier `z`, as a training with shuffled epochs is for one unit, and the release one
    of `z_release`. It holds under the conditions of `random_stopping_epsilon`, if the places of units outside of a
    sample stay empty: then the draw shows in the noisy sums alone.

    Examples:
        >>> search = {"delta": 5e-4, "mean": 40, "shape": 1}
        >>> round(subset_epsilon(0.9, 0.9, rate=0.1, **search), 2)
        7.46
        >>> round(subset_epsilon(0.9, 0.9, rate=1.0, **search), 2)
        12.74
        >>> round(subset_epsilon(0.9, math.inf, rate=0.1, **search), 2)  # the search alone
        4.52

    Args:
        z_release: infinite if nothing is released.
        mean, shape: as for `random_stopping_epsilon`.
        rate: the probability that a unit is in a candidate's sample, above 0 and at most 1.

    Raises:
        UserError: for a delta outside (0, 1), a rate outside (0, 1], noise that is not above 0, and a mean or a shape
            that `random_stopping_epsilon` does not take.
    """
    check_delta(delta)
    _check_distribution(mean, shape)
    for name, value in {"z": z, "z_release": z_release}.items():
        if not value > 0:
            raise UserError(f"{name} = {value:g} is not allowed: a noise multiplier is above 0")
    if not 0 < rate <= 1:
        raise UserError(f"rate = {rate:g} is not allowed: a share of the data, above 0 and at most 1")
    candidate = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(z))
    accountant = RdpAccountant(ORDERS)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(candidate, mean, shape))
    if z_release < math.inf:
        accountant.compose(dp_event.GaussianDpEvent(z_release))
    return float(accountant.get_epsilon(delta))


def _check_distribution(mean: float, shape: float) -> None:
    """Raise unless a random number of trials may have this mean and shape."""
    if not shape >= 0:
        raise UserError(f"shape = {shape:g} is not allowed: it must be at least 0 (1 is geometric, inf is Poisson)")
    if not 1 <= mean < math.inf:
        raise UserError(f"mean = {mean:g} is not allowed: the expected number of trials is at least 1 and finite")
