"""ε of a run, from its ledger: what the executed mechanism guarantees, and what the paper would report.

| ledger | `epsilon` | `epsilon_paper` |
|---|---|---|
| plain SGD (`private` is False) | infinite | infinite |
| nothing executed | 0 | 0 |
| noise of 0, replayable noise, alpha = paper | infinite | by its formula, which looks at z alone |
| alpha = private, its release not recorded | infinite | the same |

What a process lost when it died (`Ledger.discarded`) counts as if it had touched the weights.

δ lies between 0 and 1, both excluded, or UserError is raised. The neighbours are those of `edp.mechanism`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby

from edp.accounting.composition import Composition, check_delta, compose, sampled, unsampled
from edp.accounting.correlated import check_participation
from edp.accounting.gaussian import gaussian_epsilon
from edp.accounting.participation import participation_epsilon
from edp.accounting.pld import Memo, pld_epsilon
from edp.accounting.rdp import quick_rdp_epsilon, rdp_epsilon
from edp.ledger import Ledger, LedgerEntry
from edp.sampling import steps_at_rate

EpochEntries = tuple[int, list[LedgerEntry]]
"""An epoch's number, and what was executed in it."""

# Past this, ε = μ²/2 no longer fits a float.
_MU_INFINITE = 1e150
# The full Rényi accountant, the last resort, is worth its time for so many noise levels.
_FEW_LEVELS = 8


def epsilon(ledger: Ledger, delta: float) -> float:
    """ε that the executed mechanism guarantees at `delta`, for one unit.

    A shuffled epoch holds each unit once, however many of its steps ran, and is charged once, at its least
    noise; no amplification is claimed (Chua et al. 2024). One of more steps than its rate leaves room for is charged as
    often as whole epochs are in it, begun ones too. Poisson sampled steps get the least of three
    bounds. Correlated noise costs what independent noise does, where units took part as `edp.noise.banded` needs it.

    Examples:
        >>> from edp.accounting.planned import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 30, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01}
        >>> spec = EDPSpec(C=1.0, z0=1.0)
        >>> round(epsilon(planned_ledger(spec, **run, single_example=False), delta=5e-4), 3)
        95.173
        >>> round(epsilon(planned_ledger(spec, **run, single_example=True), delta=5e-4), 3)
        32.243
        >>> epsilon(Ledger(private=False), delta=5e-4)  # plain SGD
        inf

    Raises:
        UserError: for a delta outside (0, 1), and for correlated noise whose steps have no price.
    """
    return epsilon_of(composition_of(ledger), delta)


def epsilon_user(ledger: Ledger, delta: float) -> float | None:
    """ε for one user: all that a user contributed is zeroed out, added or removed together. None: users are not known.

    | unit | this is |
    |---|---|
    | user | `epsilon` itself |
    | example | group privacy of as many examples as one user has at most (`Ledger.most_of_a_user`) |
    | micro_batch | the same of twice as many micro-batches: each is emptied, and filled again without the user |

    Examples:
        >>> from edp.accounting.planned import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 1, "micro_batches": 8, "steps_per_epoch": 10, "rate": 0.1, "single_example": True}
        >>> ledger = planned_ledger(EDPSpec(z0=10.0), **run)
        >>> epsilon_user(ledger, 1e-5), round(epsilon(ledger, 1e-5), 2)
        (None, 0.34)
        >>> round(epsilon_user(ledger.model_copy(update={"most_of_a_user": 10}), 1e-5), 2)  # that of z0 = 1
        4.38

    Raises:
        UserError: as `epsilon`.
    """
    c = composition_of_user(ledger)
    return None if c is None else epsilon_of(c, delta)


def composition_of_user(ledger: Ledger) -> Composition | None:
    """What the ledger did to one user, in the accountants' words; None: users are not known.

    Raises:
        UserError: as `composition_of`.
    """
    units = {entry.mechanism.unit for one in (ledger, *ledger.discarded) for entry in one.entries}
    if units == {"user"}:
        return composition_of(ledger)
    if ledger.most_of_a_user is None:
        return None
    # Of no entries it is not known whether examples voted for the layer scales, or micro-batches.
    return composition_of(ledger).of_group(ledger.most_of_a_user * (1 if units == {"example"} else 2))


def epsilon_paper(ledger: Ledger, delta: float) -> float:
    """ε as the paper reports it: zCDP with reshuffling (Yu et al. 2019), for the printed z and a sensitivity
    of C.

    Not what the run guarantees: see `epsilon`. Infinite where it exceeds the largest float; see
    `log10_epsilon_paper`.

    Examples:
        >>> from edp.accounting.planned import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 30, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> round(epsilon_paper(planned_ledger(EDPSpec(z0=1.0), **run), delta=5e-4), 3)
        36.355

    Raises:
        UserError: for a delta outside (0, 1).
    """
    return _exp(_log_epsilon_paper(_log_rho(ledger), delta))


def log10_epsilon_paper(ledger: Ledger, delta: float) -> float:
    """The decimal logarithm of `epsilon_paper`, as in the paper's Table 1; never overflows."""
    return _log_epsilon_paper(_log_rho(ledger), delta) / math.log(10)


def epsilon_curve(
    ledger: Ledger,
    delta: float,
    *,
    wanted: Container[int] | None = None,
    each: Callable[[Sequence[EpochEntries]], Iterable[EpochEntries]] = iter,
) -> list[tuple[int, float, float]]:
    """(epoch, epsilon, epsilon_paper) after each epoch, counted from 0: what a run that stopped there would have
    guaranteed.

    An epoch that ran partly counts like one that ran in full.

    Examples:
        >>> from edp.accounting.planned import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 3, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> for epoch, honest, paper in epsilon_curve(planned_ledger(EDPSpec(z0=1.0), **run), delta=5e-4):
        ...     print(epoch, round(honest, 2), round(paper, 2))
        0 7.99 4.4
        1 12.65 6.51
        2 16.7 8.25

    Args:
        wanted: the epochs that it is asked for, all by default: with Poisson sampling each may take seconds.
        each: what the epochs go through on their way, such as a progress bar.

    Raises:
        UserError: as `epsilon`.
    """
    memo: Memo = {}
    total, log_rho = _before_training(ledger), _log_rho_discarded(ledger)
    curve = []
    waiting: list[Composition] = []
    for epoch, entries in each(list(_epochs(ledger))):
        waiting.append(_composition_of_epoch(entries))
        log_rho = _log_add(log_rho, _log_rho_of_epoch(entries))
        if wanted is None or epoch in wanted:
            total, waiting = compose([total, *waiting]), []
            curve.append((epoch, epsilon_of(total, delta, memo), _exp(_log_epsilon_paper(log_rho, delta))))
    return curve


def composition_of(ledger: Ledger) -> Composition:
    """What the ledger did to one unit, in the accountants' words.

    Raises:
        UserError: for correlated noise whose steps have no price.
    """
    return compose([_before_training(ledger), _steps_of(ledger)])


def epsilon_of(c: Composition, delta: float, memo: Memo | None = None) -> float:
    """ε of a composition at `delta`. `memo` speeds up calls whose compositions continue each other.

    Raises:
        UserError: for a delta outside (0, 1).
    """
    check_delta(delta)
    highest = c.mu_if_always_drawn
    if highest > _MU_INFINITE:
        return math.inf
    cheap = quick_epsilon(c, delta)
    if not c.sampled or cheap == 0:
        return cheap
    tight = pld_epsilon(c, delta, cheap, memo)
    if tight == math.inf and len(c.sampled) <= _FEW_LEVELS:
        tight = rdp_epsilon(c, delta)
    return min(cheap, tight)


def quick_epsilon(c: Composition, delta: float) -> float:
    """An upper bound of `epsilon_of`, in milliseconds; exact without Poisson samples."""
    at_most = gaussian_epsilon(c.mu_if_always_drawn, delta)
    if not c.sampled or at_most == 0:
        return at_most
    return min(at_most, quick_rdp_epsilon(c, delta), participation_epsilon(c, delta))


def _epochs(ledger: Ledger) -> Iterator[EpochEntries]:
    """Each epoch's entries. An epoch's number that comes back after another one is an epoch of its own."""
    for epoch, entries in groupby(ledger.entries, key=lambda entry: entry.epoch):
        yield epoch, list(entries)


def _before_training(ledger: Ledger) -> Composition:
    """The release of the layer scales, what no amount of noise makes good, and what was lost."""
    check_participation(ledger.entries)
    estimated = any(entry.mechanism.alpha == "private" for entry in ledger.entries)
    if not ledger.private or (estimated and ledger.alpha_release is None):
        return Composition(mu=math.inf)
    lost = [part for one in ledger.discarded for part in (_release_of(one), _steps_of(one))]
    return compose([_release_of(ledger), *lost])


def _release_of(ledger: Ledger) -> Composition:
    return unsampled(ledger.alpha_release.z) if ledger.alpha_release else Composition()


def _steps_of(ledger: Ledger) -> Composition:
    return compose([_composition_of_epoch(entries) for _, entries in _epochs(ledger)])


def _composition_of_epoch(entries: list[LedgerEntry]) -> Composition:
    shuffled = [e for e in entries if e.mechanism.sampling == "shuffle"]
    parts = []
    if shuffled:
        noise = min(e.mechanism.effective_noise_multiplier() for e in shuffled)
        parts.append(unsampled(noise, _times_shuffled(shuffled)))
    for entry in entries:
        m = entry.mechanism
        if m.sampling == "poisson":
            # Examples are drawn, or users, not micro-batches: there is one in every step, and nothing hides it from
            # view.
            rate = 1.0 if m.unit == "micro_batch" else m.rate
            parts.append(sampled(rate, m.effective_noise_multiplier(), entry.steps))
    return compose(parts)


def _times_shuffled(entries: list[LedgerEntry]) -> int:
    """How often the steps of one shuffled epoch may hold a unit: once, unless there are more than the epoch has."""
    steps: dict[float, int] = {}
    for entry in entries:
        steps[entry.mechanism.rate] = steps.get(entry.mechanism.rate, 0) + entry.steps
    return sum(-(-n // steps_at_rate(rate)) for rate, n in steps.items())


def _log_rho(ledger: Ledger) -> float:
    if not ledger.private:
        return math.inf
    total = _log_rho_discarded(ledger)
    for _, entries in _epochs(ledger):
        total = _log_add(total, _log_rho_of_epoch(entries))
    return total


def _log_rho_discarded(ledger: Ledger) -> float:
    if not ledger.private:
        return math.inf
    total = -math.inf
    for one in ledger.discarded:
        total = _log_add(total, _log_rho(one))
    return total


def _log_rho_of_epoch(entries: list[LedgerEntry]) -> float:
    """ln of 1/(2 z²), the zCDP parameter of one epoch with reshuffling."""
    z = min(entry.mechanism.z for entry in entries)
    return math.log(_times_shuffled(entries) / 2) - 2 * math.log(z) if z > 0 else math.inf


def _log_epsilon_paper(log_rho: float, delta: float) -> float:
    """ln(ρ + 2√(ρ·ln(1/δ))): Bun & Steinke (2016), Proposition 1.3."""
    check_delta(delta)
    return _log_add(log_rho, math.log(2) + (log_rho + math.log(-math.log(delta))) / 2)


def _log_add(a: float, b: float) -> float:
    """ln(e^a + e^b), also for infinite a or b."""
    low, high = min(a, b), max(a, b)
    return high if math.isinf(high) else high + math.log1p(math.exp(low - high))


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
