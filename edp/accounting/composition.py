"""What accountants price: Gaussian mechanisms that compose adaptively, some of them on Poisson samples.

All parts stand for the same neighbours: one unit zeroed out. An unsampled part is dominated by N(0,1) against
N(μ,1); a sampled step by the same pair, mixed with probability `rate`, in both directions, which is also what
adding or removing the unit gives. Dominating pairs compose (Zhu, Dong & Wang 2022, Theorem 10), so shuffled
and sampled parts may be mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edp.spec import UserError


@dataclass(frozen=True, slots=True)
class SampledSteps:
    """`steps` Gaussian mechanisms with noise multiplier `z`, each on a fresh Poisson sample with probability
    `rate`.
    """

    rate: float
    z: float
    steps: int


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything that touched one unit: unsampled mechanisms as one Gaussian (`mu = √Σ 1/z²`), and sampled
    steps.
    """

    mu: float = 0.0
    sampled: tuple[SampledSteps, ...] = ()

    @property
    def mu_if_always_drawn(self) -> float:
        """`mu` if the unit had been in every sample: no accountant may charge more than for that."""
        return math.hypot(self.mu, *(math.sqrt(s.steps) / s.z for s in self.sampled))

    def of_group(self, units: int) -> Composition:
        """The same with `units` of them zeroed out together, wherever they stand.

        A Gaussian mechanism is shifted by so many times as much (Dong, Roth and Su 2022, Theorem 2.14). A Poisson
        sample holds some of them with probability 1 - (1 - rate)^units, and is then shifted by at most as much:
        whatever mixture of smaller shifts it is, that one dominates it, in both directions. For the hockey-stick
        divergence of (1-p)·Q + p·P1 and Q is p times that of P1 and Q (of 1 - α(1-p) times Q and P1 the other way), at
        another α; it is jointly convex, and grows with the shift of a Gaussian.
        """
        some = (sampled(-math.expm1(units * math.log1p(-s.rate)), s.z / units, s.steps) for s in self.sampled)
        return compose([Composition(self.mu * units), *some])


def unsampled(z: float, times: int = 1) -> Composition:
    """`times` Gaussian mechanisms with noise multiplier `z` that all see the unit. `z = 0` costs infinitely
    much.
    """
    return Composition(mu=math.sqrt(times) / z if z > 0 else math.inf)


def sampled(rate: float, z: float, steps: int) -> Composition:
    """`steps` Gaussian mechanisms with noise multiplier `z` on Poisson samples with probability `rate` (0 to
    1).
    """
    if z == 0 or rate == 1:
        return unsampled(z, steps)
    return Composition(sampled=(SampledSteps(rate, z, steps),))


def compose(parts: Iterable[Composition]) -> Composition:
    """All of `parts`, each chosen in the light of the results of the ones before it."""
    mu = 0.0
    steps: dict[tuple[float, float], int] = {}
    for part in parts:
        mu = math.hypot(mu, part.mu)
        for s in part.sampled:
            steps[s.rate, s.z] = steps.get((s.rate, s.z), 0) + s.steps
    return Composition(mu, tuple(SampledSteps(rate, z, n) for (rate, z), n in steps.items()))


def check_delta(delta: float) -> None:
    """Raises UserError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta:g} is not allowed: it must lie between 0 and 1, both excluded")
