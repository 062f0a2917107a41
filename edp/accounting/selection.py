"""ε of a whole search: many trials on the same private data cost more than the released one alone.

`composed_epsilon` holds for any searcher. `random_stopping_epsilon` is less, if only the best trial is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.special import exprel

from edp.accounting.composition import Composition, check_delta, compose, composition_of, composition_of_user
from edp.accounting.epsilon import epsilon_of
from edp.accounting.rdp import ORDERS, event_of
from edp.accounting.tradeoff import both_trade_offs
from edp.ledger import Ledger
from edp.spec import UserError

_XTOL = 1e-12


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


def random_stopping_epsilon(base: Ledger, delta: float, mean: float, shape: float) -> float:
    """Return ε of releasing only the best of a secret random number of trials.

    The smaller of two bounds: that of the privacy profile (`_profile_epsilon`), and that of Rényi divergences in
    Papernot & Steinke (2022), Theorem 2 (Theorem 6 for the Poisson distribution), through dp_accounting. Both hold if
    the number is drawn once and kept secret, every trial draws its configuration independently from one fixed
    distribution, and nothing of the other trials leaves the sweep, nor the winner's number. The order of the
    trials from best to worst must be a function of their outputs.

    Examples:
        >>> from edp.accounting.epsilon import epsilon
        >>> from edp.ledger import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 5, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1, "single_example": True}
        >>> one = planned_ledger(EDPSpec(z0=2.0), **run)
        >>> round(epsilon(one, 1e-5), 2), round(random_stopping_epsilon(one, 1e-5, mean=10, shape=1), 2)
        (4.98, 7.47)

    Args:
        base: a trial with the *least* noise that the distribution of configurations allows. None of them may have a
            larger privacy profile anywhere.
        mean: expected number of trials.
        shape: of that number's truncated negative binomial distribution (1: geometric, 0: logarithmic, inf: Poisson).

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
    accountant = RdpAccountant(ORDERS).compose(dp_event.RepeatAndSelectDpEvent(event_of(cost), mean, shape))
    return min(float(accountant.get_epsilon(delta)), _profile_epsilon(cost, delta, mean, shape))


def _profile_epsilon(c: Composition, delta: float, mean: float, shape: float) -> float:
    """Return ε of the best trial from the privacy profile δ_Q of one trial (Koskela, Redberg & Wang 2024).

    Let q and q' be the densities of a trial's output y on two neighbours, t and t' the probabilities that a trial is
    better than y (ties broken at random), and φ the probability generating function of the number K of trials. The
    best trial has the density

        a(y) = q(y)·φ'(1-t)                                                                                 (1)

    as P(best is no better than y) = φ(1-t). φ' rises to φ'(1) = E[K], so that ∫ max(a - e^ε·a', 0) gives

        δ_A(ε) <= E[K]·δ_Q(ε - ln R),    R = sup φ'(1-t) / φ'(1-t')                                         (2)

    "Better than y" is a test, so δ_Q limits it, and the supremum is over the t and t' with

        t' <= e^ρ·t + δ_Q(ρ)    for every ρ                                                                 (3)

    *Truncated negative binomial*, of shape η: φ'(1-t) is proportional to (γ + (1-γ)·t)^-(1+η). At the root ρ of

        δ_Q(ρ)·(1-γ)/γ = e^ρ - 1                                                                            (4)

    (3) reads γ + (1-γ)·t' <= e^ρ·(γ + (1-γ)·t). Hence R = e^((1+η)ρ). (3) allows no smaller R, and the one of the
    paper, (e^ρ̂ + δ_Q(ρ̂)·(1-γ)/γ)^(1+η), is larger at every ρ̂.

    *Poisson*: φ'(1-t) = E[K]·e^(-E[K]·t), so R = e^(E[K]·δ_Q(0)). K = 0 is as probable on both neighbours.
    """
    alone, curves = epsilon_of(c, delta / mean), both_trade_offs(c, delta / mean)

    def profile(epsilon: float) -> float:
        return max(curve.delta(epsilon) for curve in curves)

    if shape == math.inf:
        return mean * profile(0.0) + alone
    odds = _odds_of_more(mean, shape)
    most = math.log1p(2 * odds)  # δ_Q is at most 1, so the root is at most ln(1 + odds); 2 leaves room for rounding
    root = brentq(lambda rho: odds * profile(rho) - math.expm1(rho), 0.0, most, xtol=_XTOL)
    return (1 + shape) * (float(root) + 10 * _XTOL) + alone


def _odds_of_more(mean: float, shape: float) -> float:
    """Return (1-γ)/γ of the truncated negative binomial distribution with `mean`: mean - 1 for shape 1.

    The mean is η(1-γ) / (γ(1-γ^η)), and in the limit η = 0 (1-γ) / (γ·ln(1/γ)): Papernot & Steinke (2022). With
    u = ln(1/γ) and exprel(x) = (e^x - 1)/x, both are exprel(u) / exprel(-ηu).
    """
    log_mean = math.log(mean)
    most = log_mean + math.log1p(2 * log_mean)  # here exprel(u) is at least `mean`, and so is the quotient
    return math.expm1(brentq(lambda u: exprel(u) / exprel(-shape * u) - mean, 0.0, most, xtol=_XTOL))
