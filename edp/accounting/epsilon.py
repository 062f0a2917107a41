"""ε of a run, from its ledger: the guarantee of the executed mechanism, and the figure of the paper's formula.

| ledger | `epsilon` | `epsilon_paper` |
|---|---|---|
| plain SGD (`private` is False) | infinite | infinite |
| nothing executed | 0 | 0 |
| noise of 0, replayable noise, alpha = paper | infinite | by its formula, which looks at z alone |
| alpha = private, its release not recorded | infinite | the same |

Steps whose weights were lost when a process died (`Ledger.discarded`) count as if they had touched the weights.

δ lies between 0 and 1, both excluded, or UserError is raised. The neighbours are those of `edp.mechanism`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence

from edp.accounting.composition import (
    Composition,
    EpochEntries,
    before_training,
    check_delta,
    compose,
    composition_of,
    composition_of_epoch,
    composition_of_user,
    epochs_of,
    times_shuffled,
)
from edp.accounting.gaussian import gaussian_epsilon, participation_epsilon
from edp.accounting.pld import Memo, pld_epsilon
from edp.accounting.rdp import quick_rdp_epsilon, rdp_epsilon
from edp.ledger import Ledger, LedgerEntry

# Past this, ε = μ²/2 no longer fits a float.
_MU_INFINITE = 1e150
# The full Rényi accountant, the last resort, takes a fifth of a second a noise level: use it for so many at most.
_MAX_RDP_LEVELS = 8


def epsilon(ledger: Ledger, delta: float) -> float:
    """Return the ε that the executed mechanism guarantees at `delta`, for one unit.

    A shuffled epoch holds each unit once, however many of its steps ran, and is charged once, at its least noise; no
    amplification is claimed (Chua et al. 2024). An epoch of more steps than its rate gives is charged once for each
    whole or begun epoch of that rate. Poisson sampled steps get the least of three bounds. Correlated noise costs
    what independent noise does, if units took part as `edp.noise.banded` requires.

    Examples:
        >>> from edp.ledger import planned_ledger
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
    """Return ε for one user, all of whose data is zeroed out, added or removed together; None if users are not known.

    | unit | ε for one user |
    |---|---|
    | user | `epsilon` itself |
    | example | group privacy of the most examples that one user has (`Ledger.most_of_a_user`) |
    | micro_batch | the same of twice as many micro-batches: each is emptied, and filled again without the user |

    Poisson sampling draws each of the user's examples by itself, and the accountant of privacy losses knows it
    (`Composition.of_group`). Where it gives up, such as above an ε of 1e5 or below a δ of 1e-9, the bound is that of
    examples which are all drawn together if one is; it is loose by orders of magnitude.

    Examples:
        >>> from edp.ledger import planned_ledger
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


def epsilon_paper(ledger: Ledger, delta: float) -> float:
    """Return ε as the paper reports it: zCDP with reshuffling (Yu et al. 2019), for the printed z and sensitivity C.

    Not a guarantee: see `epsilon`. Infinite if it exceeds the largest float; see `log10_epsilon_paper`.

    Examples:
        >>> from edp.ledger import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 30, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> round(epsilon_paper(planned_ledger(EDPSpec(z0=1.0), **run), delta=5e-4), 3)
        36.355

    Raises:
        UserError: for a delta outside (0, 1).
    """
    return _exp(_log_epsilon_paper(_log_rho(ledger), delta))


def log10_epsilon_paper(ledger: Ledger, delta: float) -> float:
    """Return the decimal logarithm of `epsilon_paper`, as in the paper's Table 1; never overflows."""
    return _log_epsilon_paper(_log_rho(ledger), delta) / math.log(10)


def epsilon_curve(
    ledger: Ledger,
    delta: float,
    *,
    wanted: Container[int] | None = None,
    each: Callable[[Sequence[EpochEntries]], Iterable[EpochEntries]] = iter,
) -> list[tuple[int, float, float]]:
    """Return (epoch, epsilon, epsilon_paper) after each epoch, counted from 0: the guarantee of a run that stops there.

    An epoch that ran partly counts like one that ran in full.

    Examples:
        >>> from edp.ledger import planned_ledger
        >>> from edp.spec import EDPSpec
        >>> run = {"epochs": 3, "micro_batches": 8, "steps_per_epoch": 100, "rate": 0.01, "single_example": False}
        >>> for epoch, honest, paper in epsilon_curve(planned_ledger(EDPSpec(z0=1.0), **run), delta=5e-4):
        ...     print(epoch, round(honest, 2), round(paper, 2))
        0 7.99 4.4
        1 12.65 6.51
        2 16.7 8.25

    Args:
        wanted: the epochs to compute, all by default: with Poisson sampling each may take seconds.
        each: wraps the iteration over the epochs, such as a progress bar.

    Raises:
        UserError: as `epsilon`.
    """
    memo: Memo = {}
    total, log_rho = before_training(ledger), _log_rho_discarded(ledger)
    curve = []
    waiting: list[Composition] = []
    for epoch, entries in each(list(epochs_of(ledger))):
        waiting.append(composition_of_epoch(entries))
        log_rho = _log_add(log_rho, _log_rho_of_epoch(entries))
        if wanted is None or epoch in wanted:
            total, waiting = compose([total, *waiting]), []
            curve.append((epoch, epsilon_of(total, delta, memo), _exp(_log_epsilon_paper(log_rho, delta))))
    return curve


def epsilon_of(c: Composition, delta: float, memo: Memo | None = None) -> float:
    """Return ε of a composition at `delta`. `memo` speeds up calls whose compositions continue each other.

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
    if tight == math.inf and len(c.sampled) <= _MAX_RDP_LEVELS:
        tight = rdp_epsilon(c, delta)
    return min(cheap, tight)


def quick_epsilon(c: Composition, delta: float) -> float:
    """Return an upper bound of `epsilon_of`, in milliseconds; exact without Poisson samples."""
    at_most = gaussian_epsilon(c.mu_if_always_drawn, delta)
    if not c.sampled or at_most == 0:
        return at_most
    return min(at_most, quick_rdp_epsilon(c, delta), participation_epsilon(c, delta))


def _log_rho(ledger: Ledger) -> float:
    if not ledger.private:
        return math.inf
    total = _log_rho_discarded(ledger)
    for _, entries in epochs_of(ledger):
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
    """Return ln of 1/(2 z²), the zCDP parameter of one epoch with reshuffling."""
    z = min(entry.mechanism.z for entry in entries)
    return math.log(times_shuffled(entries) / 2) - 2 * math.log(z) if z > 0 else math.inf


def _log_epsilon_paper(log_rho: float, delta: float) -> float:
    """Return ln(ρ + 2√(ρ·ln(1/δ))): Bun & Steinke (2016), Proposition 1.3."""
    check_delta(delta)
    return _log_add(log_rho, math.log(2) + (log_rho + math.log(-math.log(delta))) / 2)


def _log_add(a: float, b: float) -> float:
    """Return ln(e^a + e^b), also for infinite a or b."""
    low, high = min(a, b), max(a, b)
    return high if math.isinf(high) else high + math.log1p(math.exp(low - high))


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
