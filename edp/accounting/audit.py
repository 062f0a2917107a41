"""Lower bounds of ε by attack, from one training run.

m canaries are each included by a fair coin of their own. An attacker sees the release, guesses r of the coins and
abstains on the others; v guesses are right. Two bounds, which hold for every attacker:

| bound | rules out | assumes of the mechanism |
|---|---|---|
| `audited_epsilon`: Steinke, Nasr & Jagielski (2023), Theorem 5.2 | that the run is (ε, δ)-private | nothing |
| `audited_epsilon_f_dp`: Mahloujifar, Melis & Chaudhuri (2024) | that the run permits no more than a given trade-off \
curve, whatever its ε | that its curve is in the family of the ledger's own mechanism, with more or less noise |

**Derivation of the second.** Call V the number of right guesses, p_v = P[V = v], and F the largest TPR as a function
of FPR, which is concave (`edp.accounting.tradeoff`). Take a canary j, the others' coins and a number i. If j's guess is
right and V >= i, then with j's coin flipped and the same output the guess is wrong and V >= i-1. These are an event of
outputs under one of two neighbours and the same event under the other, hence P[j right, V >= i] <=
F(P[j wrong, V >= i-1]) for each value of j's coin. Average over j's coin, the others' coins and all m canaries; F is
concave (Jensen):

    R_i <= F(L_{i-1}),    R_i = Σ_{v>=i} p_v v/m,    L_i = Σ_{v>=i} p_v (r-v)/m    for i = 1..r.    (*)

The test computes the smallest total probability that is compatible with P[V >= v] = α. By (*) a right tail needs
probability below it. Moving some from a number u to u-1 relaxes all of (*) but R_{u+1} <= F(L_u). So the smallest
total has all of α at v itself and, from v-1 down, at each number as little as its inequality needs. If it exceeds 1,
no run within the curve has P[V >= v] >= α, and v guesses rule the curve out with confidence 1-α.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from edp.accounting.composition import Composition
from edp.accounting.epsilon import epsilon_of
from edp.accounting.tradeoff import TradeOff, audit_trade_off

# Far above every bound: 1e5 canaries, all guessed right, give 10.4.
_MAX_EPSILON = 100.0
# The search multiplies the noise by the first until it has bracketed the factor, and bisects to a share of the second.
_FACTOR, _EXACT = 2.0, 1e-3
# The μ of a family to search between: no number of guesses rules out the first, and every one rules out the second.
_MIN_MU, _MAX_MU = 1e-3, 1e3


def audited_epsilon(m: int, r: int, v: int, delta: float, confidence: float = 0.95) -> float:
    """Return the largest ε that `v` right guesses out of `r` rule out: with `confidence` the run is not (ε, δ)-private.

    Print it with "≥": the attack limits it, and so does m (5.81 for 1e3 canaries, 10.42 for 1e5, all guessed, at δ = 0
    and 95%; 4.28 for 1e3 at δ = 5e-4). It tests the guarantee of one canary: compare it with `epsilon` for that unit.

    Examples:
        >>> round(audited_epsilon(m=1000, r=100, v=90, delta=1e-5), 2)
        1.63
        >>> audited_epsilon(m=1000, r=100, v=50, delta=1e-5)  # as good as tossing coins
        0.0

    Args:
        m: canaries, each included or left out by a fair coin of its own.
        r: guesses made, at most m; the attacker abstains on the others.
        v: right ones among them.

    Returns:
        The bound, 0 where the guesses rule nothing out.

    Raises:
        ValueError: unless 0 <= v <= r <= m, 0 <= delta < 1 and 0 < confidence < 1.
    """
    _check(m, r, v, delta, confidence)
    ruled_out, possible = 0.0, _MAX_EPSILON
    if _p_value(0.0, m, r, v, delta) >= 1 - confidence:
        return 0.0
    while possible - ruled_out > 1e-9:
        middle = (ruled_out + possible) / 2
        if _p_value(middle, m, r, v, delta) < 1 - confidence:
            ruled_out = middle
        else:
            possible = middle
    return ruled_out


def audited_epsilon_f_dp(
    c: Composition, m: int, guesses: Sequence[tuple[int, int]], delta: float, confidence: float = 0.95
) -> float:
    """Return the ε at `delta` of the noisiest mechanism of `c`'s family that the guesses do not rule out.

    The family is `c` with all noise multiplied by one factor: for a Gaussian mechanism all Gaussian ones, for Poisson
    samples those at the same rates and steps. A `c` that guarantees nothing has no curve; its family is that of the
    Gaussian mechanisms. If the run's curve is in the family, then with `confidence` its ε is at least the bound.

    Args:
        c: the executed mechanisms (`edp.accounting.composition.composition_of`).
        m: canaries, as for `audited_epsilon`.
        guesses: r and v of each way to guess. Any of them may rule a mechanism out; each gets its share of
            1 - confidence (Bonferroni), so that `confidence` holds for all together.

    Returns:
        The bound, 0 where the guesses rule nothing out.

    Raises:
        ValueError: as `audited_epsilon`.
    """
    for r, v in guesses:
        _check(m, r, v, delta, confidence)
    each = 1 - (1 - confidence) / max(1, len(guesses))
    of_family = c if 0 < c.mu_if_always_drawn < math.inf else Composition(mu=1.0)

    def ruled_out(factor: float) -> bool:
        curve = audit_trade_off(with_noise(of_family, factor), delta)
        return any(rules_out(curve, m, r, v, each) for r, v in guesses)

    least, most = (of_family.mu_if_always_drawn / mu for mu in (_MAX_MU, _MIN_MU))
    # The noise is at most `possible` and, as far as is known, more than nothing.
    possible = 1.0
    while ruled_out(possible) and possible > least:
        possible /= _FACTOR
    noisier = possible * _FACTOR
    while not ruled_out(noisier):
        if noisier > most:
            return 0.0
        possible, noisier = noisier, noisier * _FACTOR
    while noisier > possible * (1 + _EXACT):
        middle = math.sqrt(possible * noisier)
        possible, noisier = (possible, middle) if ruled_out(middle) else (middle, noisier)
    return epsilon_of(with_noise(of_family, noisier), delta)


def rules_out(curve: TradeOff, m: int, r: int, v: int, confidence: float) -> bool:
    """Return True if `v` right guesses of `r` on `m` canaries rule out that the run permits no more than `curve`."""
    if v == 0:
        return False
    total = tail = 1 - confidence
    right, wrong = tail * v / m, tail * (r - v) / m
    for i in range(v - 1, -1, -1):
        needed = curve.min_fpr(right)
        here = (needed - wrong) * m / (r - i)
        if here <= 0:  # then all below are too: no right side of an inequality grows any more
            return False
        total += here
        right, wrong = right + here * i / m, needed
        if total > 1:
            return True
    return False


def with_noise(c: Composition, factor: float) -> Composition:
    """Return `c` with all noise multiplied by `factor`."""
    return Composition(c.mu / factor, tuple(replace(s, z=s.z * factor) for s in c.sampled))


def _check(m: int, r: int, v: int, delta: float, confidence: float) -> None:
    if not 0 <= v <= r <= m:
        raise ValueError(f"m = {m}, r = {r}, v = {v}: 0 <= v <= r <= m must hold")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ValueError(f"delta = {delta:g} must lie in [0, 1), confidence = {confidence:g} in (0, 1)")


def _p_value(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    """Return the largest probability of `v` or more right guesses of `r` that an (ε, δ)-private run permits."""
    right = float(expit(epsilon))
    at_least_v = float(binom.sf(v - 1, r, right))
    if delta == 0 or v == 0:
        return min(1.0, at_least_v)
    fewer = np.arange(1, v + 1)
    slack = float(((binom.sf(v - fewer - 1, r, right) - at_least_v) / fewer).max())
    return min(1.0, at_least_v + 2 * m * delta * max(slack, 0.0))
