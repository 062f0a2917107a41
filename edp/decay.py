"""Noise decay: `z_t = z0 * d(t)` (paper, section 3, "Noise Decay")."""

from __future__ import annotations

import math

from edp.spec import Decay, EDPSpec


def decay_factor(decay: Decay, tau: float, epoch: int) -> float:
    """`d(t)` for epoch `t`, counted from 0, so that the first epoch has the full noise: d(0) = 1.

    Examples:
        >>> decay_factor("linear", 0.5, 2)
        0.5
    """
    match decay:
        case "none":
            return 1.0
        case "linear":
            return 1.0 / (1.0 + tau * epoch)
        case "exponential":
            return math.exp(-tau * epoch)


def noise_multiplier(spec: EDPSpec, epoch: int) -> float:
    """`z_t`, the noise multiplier of epoch `t` (counted from 0)."""
    return spec.z0 * decay_factor(spec.decay, spec.tau, epoch)
