"""A lower bound of ε by attack, from one training run (Steinke, Nasr and Jagielski 2023, Theorem 5.2).

m canaries are each included by a fair coin of their own. An attacker sees the release, guesses r of the coins and
abstains on the others; v guesses are right. The bound holds for every attacker and every mechanism.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

# Far above every bound: 1e5 canaries, all guessed right, give 10.4.
_MAX_EPSILON = 100.0


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
