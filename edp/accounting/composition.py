"""The mechanisms that a ledger applied to one unit: what every accountant prices.

They are Gaussian mechanisms that compose adaptively, some of them on Poisson samples. All parts stand for the same
neighbours: one unit zeroed out. An unsampled part is dominated by N(0,1) against N(μ,1); a sampled step by the same
pair, mixed with probability `rate`, in both directions, which also covers adding or removing the unit. Dominating
pairs compose (Zhu, Dong & Wang 2022, Theorem 10), so shuffled and sampled parts may be mixed.

The accountants never ask what kind of noise a step had: `check_participation` refuses correlated noise that does not
meet the conditions of `edp.noise.banded`, and under these it costs what independent noise costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from edp.ledger import Ledger, LedgerEntry
from edp.sampling import steps_at_rate
from edp.spec import UserError

EpochEntries = tuple[int, list[LedgerEntry]]
"""An epoch's number, and its entries."""


@dataclass(frozen=True, slots=True)
class SampledSteps:
    """`steps` Gaussian mechanisms with noise multiplier `z`, each on a fresh Poisson sample with probability `rate`.

    `units` units are zeroed out together; the sample draws each by itself.
    """

    rate: float
    z: float
    steps: int
    units: int = 1


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything that touched one unit: unsampled mechanisms as one Gaussian (`mu = √Σ 1/z²`), and sampled steps."""

    mu: float = 0.0
    sampled: tuple[SampledSteps, ...] = ()

    @property
    def mu_if_always_drawn(self) -> float:
        """`mu` if the unit had been in every sample: an upper bound for every accountant."""
        return math.hypot(self.mu, *(s.units * math.sqrt(s.steps) / s.z for s in self.sampled))

    def of_group(self, units: int) -> Composition:
        """Return the composition for `units` units that are zeroed out together, whatever steps they are in.

        A Gaussian mechanism is shifted by `units` times as much (Dong, Roth and Su 2022, Theorem 2.14). A Poisson
        sample holds j ~ Bin(units, rate) of them, and is then shifted by at most j times as much: the mixture of the
        N(j, z²) against N(0, z²), in both directions, dominates it (Ganesh 2024, "Tight Group-Level DP Guarantees for
        DP-SGD with Sampling via Mixture of Gaussians Mechanisms").
        """
        return Composition(self.mu * units, tuple(replace(s, units=s.units * units) for s in self.sampled))

    def of_single_units(self) -> Composition:
        """Return a composition without groups that costs no less: a group that is drawn in part counts as a whole.

        A sample holds some of the units with probability p = 1 - (1 - rate)^units, and its shift is then at most
        `units`. That largest shift dominates every mixture of smaller ones, in both directions: the hockey-stick
        divergence of (1-p)·Q + p·P1 and Q is p times that of P1 and Q (of 1 - α(1-p) times Q and P1 the other way), at
        another α; it is jointly convex, and grows with the shift of a Gaussian.
        """
        if all(s.units == 1 for s in self.sampled):
            return self
        whole = (sampled(-math.expm1(s.units * math.log1p(-s.rate)), s.z / s.units, s.steps) for s in self.sampled)
        return compose([Composition(self.mu), *whole])


def unsampled(z: float, times: int = 1) -> Composition:
    """Return `times` Gaussian mechanisms with noise multiplier `z` that all see the unit. `z = 0` costs infinity."""
    return Composition(mu=math.sqrt(times) / z if z > 0 else math.inf)


def sampled(rate: float, z: float, steps: int) -> Composition:
    """Return `steps` Gaussian mechanisms with noise multiplier `z` on Poisson samples at `rate` (0..1)."""
    if z == 0 or rate == 1:
        return unsampled(z, steps)
    return Composition(sampled=(SampledSteps(rate, z, steps),))


def compose(parts: Iterable[Composition]) -> Composition:
    """Return the adaptive composition of `parts`: each may depend on the results of the ones before it."""
    mu = 0.0
    steps: dict[tuple[float, float, int], int] = {}
    for part in parts:
        mu = math.hypot(mu, part.mu)
        for s in part.sampled:
            kind = s.rate, s.z, s.units
            steps[kind] = steps.get(kind, 0) + s.steps
    return Composition(mu, tuple(SampledSteps(rate, z, n, units) for (rate, z, units), n in steps.items()))


def composition_of(ledger: Ledger) -> Composition:
    """Return what the ledger did to one unit.

    Raises:
        UserError: for correlated noise whose steps have no price.
    """
    return compose([before_training(ledger), _of_steps(ledger)])


def composition_of_user(ledger: Ledger) -> Composition | None:
    """Return what the ledger did to one user (`edp.accounting.epsilon.epsilon_user`), or None if users are not known.

    Raises:
        UserError: as `composition_of`.
    """
    units = {entry.mechanism.unit for one in (ledger, *ledger.discarded) for entry in one.counted}
    if units == {"user"}:
        return composition_of(ledger)
    if ledger.most_of_a_user is None:
        return None
    # Without entries, assume the worse: that micro-batches, not examples, voted for the layer scales.
    return composition_of(ledger).of_group(ledger.most_of_a_user * (1 if units == {"example"} else 2))


def before_training(ledger: Ledger) -> Composition:
    """Return what counts besides the steps: the release of the layer scales, discarded steps, and what no noise hides.

    Raises:
        UserError: as `composition_of`.
    """
    check_participation(ledger.counted)
    estimated = any(entry.mechanism.alpha == "private" for entry in ledger.counted)
    if not ledger.private or (estimated and ledger.alpha_release is None):
        return Composition(mu=math.inf)
    lost = [part for one in ledger.discarded for part in (_of_release(one), _of_steps(one))]
    return compose([_of_release(ledger), *lost])


def _of_release(ledger: Ledger) -> Composition:
    return unsampled(ledger.alpha_release.z) if ledger.alpha_release else Composition()


def _of_steps(ledger: Ledger) -> Composition:
    return compose([composition_of_epoch(entries) for _, entries in epochs_of(ledger)])


def epochs_of(ledger: Ledger) -> Iterator[EpochEntries]:
    """Yield each epoch's entries. A number that returns after another epoch is an epoch of its own."""
    for epoch, entries in groupby(ledger.counted, key=lambda entry: entry.epoch):
        yield epoch, list(entries)


def composition_of_epoch(entries: list[LedgerEntry]) -> Composition:
    """Return what one epoch did to one unit."""
    shuffled = [e for e in entries if e.mechanism.sampling == "shuffle"]
    parts = []
    if shuffled:
        noise = min(e.mechanism.effective_noise_multiplier() for e in shuffled)
        parts.append(unsampled(noise, times_shuffled(shuffled)))
    for entry in entries:
        m = entry.mechanism
        if m.sampling == "poisson":
            # Poisson sampling draws examples, or users. Every step has every micro-batch: nothing is amplified.
            rate = 1.0 if m.unit == "micro_batch" else m.rate
            parts.append(sampled(rate, m.effective_noise_multiplier(), entry.steps))
    return compose(parts)


def times_shuffled(entries: list[LedgerEntry]) -> int:
    """Return how many steps of a shuffled epoch may hold a unit: 1, unless it has more steps than its rate gives."""
    steps: dict[float, int] = {}
    for entry in entries:
        steps[entry.mechanism.rate] = steps.get(entry.mechanism.rate, 0) + entry.steps
    return sum(-(-n // steps_at_rate(rate)) for rate, n in steps.items())


def check_participation(entries: Sequence[LedgerEntry]) -> None:
    """Raise unless steps with correlated noise meet the conditions of its guarantee (`edp.noise.banded`).

    No unit may take part twice within the band. All epochs have one order, so a unit's participations are as far apart
    as the number of steps that were executed between them.

    Raises:
        UserError: with the condition that is not met.
    """
    entries = [entry for entry in entries if entry.mechanism.fixed_order]
    if not entries:
        return
    m = entries[0].mechanism
    if any(entry.mechanism != m for entry in entries):
        raise UserError(
            "ledger: correlated noise whose mechanism changes on the way has no price; allowed: one for all"
        )
    if m.sampling != "shuffle" or m.clip == "quantile":
        raise UserError(
            f"ledger: correlated noise has no price with sampling = {m.sampling}, clip = {m.clip}; "
            "allowed: shuffle, fixed or automatic"
        )
    longest = steps_at_rate(m.rate)
    if m.band > longest:
        raise UserError(
            f"ledger: band = {m.band} at rate = {m.rate:g}; allowed: at most {longest}, the steps of an epoch"
        )
    executed = [sum(entry.steps for entry in epoch) for _, epoch in groupby(entries, key=lambda entry: entry.epoch)]
    if max(executed) > longest:
        raise UserError(f"ledger: an epoch of {max(executed)} steps; allowed: at most {longest} at rate = {m.rate:g}")
    if any(steps < m.band for steps in executed[:-1]):
        raise UserError(
            f"ledger: after an epoch of {min(executed[:-1])} steps the next one began within the band; "
            f"allowed: at least {m.band} steps in every epoch but the last"
        )


def check_delta(delta: float) -> None:
    """Raise UserError unless 0 < delta < 1."""
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta:g} is not allowed: it must lie between 0 and 1, both excluded")
