"""A lower bound of ε by attack, from one training run: Steinke, Nasr & Jagielski (2023), Theorem 5.2."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from scipy.stats import binom

# No bound comes near: 1e5 canaries, all of them guessed, give 10.4.
_HIGHEST = 100.0


def audited_epsilon(m: int, r: int, v: int, delta: float, confidence: float = 0.95) -> float:
    """The largest ε that `v` right guesses out of `r` rule out: with `confidence`, the run is not (ε,
    δ)-private.

    Always to be printed with "≥": the attack bounds it, and so does m (5.81 for 1e3 canaries, 10.42 for 1e5,
    all guessed, at δ = 0 and 95%). The guarantee that it tests is that of one canary, as `epsilon` of the
    same unit.

    Args:
        m: canaries, each included or left out by a fair coin of its own.
        r: guesses made, at most m; the attacker abstains on the others.
        v: right ones among them.

    Returns:
        The bound, 0 where the guesses rule nothing out.

    Raises:
        ValueError: unless 0 <= v <= r <= m, 0 <= delta < 1 and 0 < confidence < 1.
    """
    if not 0 <= v <= r <= m:
        raise ValueError(f"m = {m}, r = {r}, v = {v}: 0 <= v <= r <= m must hold")
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ValueError(f"delta = {delta:g} must lie in [0, 1), confidence = {confidence:g} in (0, 1)")
    ruled_out, possible = 0.0, _HIGHEST
    if _p_value(0.0, m, r, v, delta) >= 1 - confidence:
        return 0.0
    while possible - ruled_out > 1e-9:
        middle = (ruled_out + possible) / 2
        if _p_value(middle, m, r, v, delta) < 1 - confidence:
            ruled_out = middle
        else:
            possible = middle
    return ruled_out


def _p_value(epsilon: float, m: int, r: int, v: int, delta: float) -> float:
    """How likely an (ε, δ)-private run lets an attacker get `v` or more of `r` guesses right, at most."""
    right = float(expit(epsilon))
    at_least_v = float(binom.sf(v - 1, r, right))
    if delta == 0 or v == 0:
        return min(1.0, at_least_v)
    fewer = np.arange(1, v + 1)
    slack = float(((binom.sf(v - fewer - 1, r, right) - at_least_v) / fewer).max())
    return min(1.0, at_least_v + 2 * m * delta * max(slack, 0.0))
