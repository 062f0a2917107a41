"""What one step's Gaussian mechanism guarantees: how far one unit can move it, and how much noise hides that.

Formal guarantee: with the others' data fixed, the noisy aggregate of a step is a Gaussian mechanism with
noise multiplier `effective_noise_multiplier`, for two neighbouring data sets:

| sampling | neighbours | who must not see |
|---|---|---|
| `shuffle` | one unit is replaced by nothing: zeroed out, its place kept | - |
| `poisson` | one unit is added or removed | which examples a step drew |

The unit is one example, or one micro-batch (all that one micro-batch of an epoch holds, zeroed out at once).
The aggregator is trusted: what a worker sends before aggregation is hidden by its own share of the noise
alone, with the multiplier z/√N (corrected noise) or z/N (the paper's).

With `clip = quantile` a step asks one thing more: how many micro-batches had a norm within the clip, each counted as
+1/2 or -1/2, and as 0 if its gradient is zero (empty, or zeroed out). The noisy sum and the noisy count are independent
Gaussians, so the step is one Gaussian mechanism, whose 1/z² is the sum of theirs.

With correlated noise no single step is such a mechanism, but all steps that a unit's part in one of them shows in are
together, at the same noise multiplier (`edp.banded`).

Sources: Dupuy et al., Algorithm 1, for the noise; McMahan & Andrew (2018), section 3.1, for clipping in
scaled space; Ponomareva et al., "How to DP-fy ML" (2023), section 5.6, for the factor of 2 of micro-batches;
Andrew et al., "Differentially Private Learning with Adaptive Clipping" (2021), Theorem 1, for sum and count as one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edp.banded import marginal_std

if TYPE_CHECKING:
    from edp.ledger import Mechanism


def sensitivity(m: Mechanism) -> float:
    """`Δ`: the farthest that one unit moves the *sum* over micro-batches, in the gradient's own unit (L2).

    Infinite for `alpha = paper`: the scales are read off the private data, so no neighbour bounds them. For
    `alpha_noise = per_layer` the norm is that of the scaled space, in which the noise is isotropic.
    """
    return m.C * _relative_sensitivity(m)


def noise_std(m: Mechanism) -> float:
    """Standard deviation of each coordinate's noise on the *aggregate* (the mean over micro-batches).

    `N` independent draws of `micro_batch_noise_std`, added and divided by N. For `alpha_noise = per_layer` it
    is that of the scaled space: layer k gets α_k times as much. For correlated noise it is that of a single step after
    many; the first steps' is less.
    """
    return micro_batch_noise_std(m) / math.sqrt(m.N) * marginal_std(m.band)


def micro_batch_noise_std(m: Mechanism) -> float:
    """Standard deviation of what each micro-batch adds to its clipped gradient, before the division by N.

    Algorithm 1 adds `y/N` with `y ~ N(0, (C·z)²)`. Variances of independent draws add up, so the noise
    multiplier of the sum is then only `z/√N`; the corrected noise is `y/√N`, which makes it `z`. Correlated noise is
    made of such draws, one a step (`edp.banded`).
    """
    return m.C * m.z / (m.N if m.noise == "paper" else math.sqrt(m.N))


def kappa(m: Mechanism) -> float:
    """`κ`: by how much the noise multiplier of the noisy sum falls short of z (dimensionless).

    Infinite, which means no guarantee, for `alpha = paper`, and when the noise can be replayed: whoever knows
    its seed subtracts it.
    """
    if m.replayable:
        return math.inf
    shortfall = math.sqrt(m.N) if m.noise == "paper" else 1.0
    return _relative_sensitivity(m) * shortfall


def count_sensitivity(m: Mechanism) -> float:
    """The farthest that one unit moves the count of `clip = quantile`, in micro-batches.

    A micro-batch counts ±1/2, or 0 without a gradient; one example of several can turn one into the other.
    """
    return 1.0 if _turns_round(m) else 0.5


def count_noise_std(micro_batches: int) -> float:
    """Standard deviation of the noise on the count: a twentieth of N, as Andrew et al. have it, at least 5.

    The floor serves the few micro-batches of the paper: whatever N and the unit, the count of a step costs at most
    1/100 of what the noisy sum costs at z = 1.
    """
    return max(micro_batches / 20, 5.0)


def effective_noise_multiplier(m: Mechanism) -> float:
    """`z/κ`: std of the noise over sensitivity, all that an accountant needs. 0 means no guarantee.

    With `clip = quantile`, of the noisy sum and the noisy count together: 1/√((κ/z)² + (s/σ)²).
    """
    if m.clip != "quantile":
        return m.z / kappa(m)
    if m.z == 0 or m.count_std == 0:
        return 0.0
    return 1 / math.hypot(kappa(m) / m.z, count_sensitivity(m) / m.count_std)


def _turns_round(m: Mechanism) -> bool:
    """Whether the clipped mean of several examples can turn round when one of them goes: from +C to -C."""
    return m.unit == "example" and not m.single_example


def _relative_sensitivity(m: Mechanism) -> float:
    """`Δ/C`, times the largest scale where the noise does not follow the scales."""
    if m.alpha == "paper":
        return math.inf
    stretch = m.max_alpha if m.alpha_noise == "isotropic" else 1.0
    return (2.0 if _turns_round(m) else 1.0) * stretch
