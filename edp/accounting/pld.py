"""Privacy loss distributions, composed by FFT (Koskela et al. 2020).

A step's privacy loss is put on a grid by connecting the dots (Doroshenko et al. 2022): the mass of each cell
is split over its two ends so that both the distributions with and without the unit keep the cell's mass.
Every interval gives an upper bound of ε, a finer one a tighter bound, so it is refined until that no longer pays.

dp_accounting does the same, but takes minutes for the 50 noise levels of a decaying run; this takes seconds. The
tests compare the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

from edp.accounting.composition import Composition, SampledSteps

Array = NDArray[np.float64]

_REFINEMENT = 4
# Stop refining below this relative gain: the next refinement would gain at most a third of it.
_STABLE = 2e-3
_NEGLIGIBLE = 1e-30
_MAX_GRID = 1 << 20
# Losses to add at once: the sum of a few takes a much smaller grid than the sum of a whole sweep's.
_AT_ONCE = 16
# Above the first, `participation_epsilon` is within a few thousandths; below the second, more digits are of no use.
_MAX_EPSILON, _MIN_EPSILON = 1e5, 1e-3
# A normal variable is farther out than this with a probability of 1e-19.
_SIGMAS = 9.0
# Rounding errors of the FFT add up to about 1e-11: below this delta they would show.
_MIN_DELTA = 1e-9
# Share of delta that may be spent on what the grid does not hold.
_TAIL = 1e-9
# Probability of more units in one sample than are considered; it counts as lost.
_RARE = 1e-19
# Terms of a group's loss, cells times units, to compute at most: a second's worth.
_MAX_TERMS = 1 << 23
# A group's loss at the edge of a cell is within this share of the cell.
_CLOSE, _NEWTON_STEPS = 1e-7, 40
# Exponents of the Chernoff bounds, per cell: 2^-20 to 1.
_TILTS = 2.0 ** np.arange(-20, 1)


@dataclass(frozen=True, slots=True)
class Losses:
    """A privacy loss on a grid: `mass[i]` at `first + i` cells, and `lost` at infinity."""

    first: int
    mass: Array
    lost: float


Pair = tuple[Losses, Losses]
"""The privacy loss of outputs with the unit against those without it, and the reverse."""

Memo = dict[float, tuple[tuple[SampledSteps, ...], Pair]]
"""By interval, the last sum of sampled steps and its loss: a longer run with the same first steps continues it."""


class _GridTooLarge(Exception):
    """A loss has too many cells to compute in time, or so many that rounding hides their sum."""


def pld_epsilon(c: Composition, delta: float, near: float, memo: Memo | None = None) -> float:
    """Return an upper bound of ε at `delta`, within about 1e-3 of the truth: the tightest bound from z of 1e-2 up.

    Args:
        near: another upper bound of ε > 0, which determines the interval.
        memo: kept between calls whose compositions continue each other.

    Returns:
        Infinity for a delta below 1e-9, an ε above 1e5, a grid of more than a million cells, or a group whose loss
        would take too long.
    """
    if near > _MAX_EPSILON and all(s.units == 1 for s in c.sampled):
        return math.inf
    memo = {} if memo is None else memo
    near = min(max(near, _MIN_EPSILON), _MAX_EPSILON)  # other bounds of a group may be loose by orders of magnitude
    # Take intervals from one ladder, so that runs which continue each other share them.
    rung = round(math.log(_first_interval(c, near), _REFINEMENT))
    best = math.inf
    while True:
        value = pld_epsilon_at(c, delta, float(_REFINEMENT) ** rung, memo)
        gain, best = best - value, min(best, value)
        if not gain > _STABLE * max(best, _MIN_EPSILON):
            return best
        rung -= 1


def pld_losses(c: Composition, delta: float, near: float) -> tuple[Pair, float] | None:
    """Return the privacy loss of `c` with Poisson samples, and its grid's interval, at which `pld_epsilon` is stable.

    Both losses dominate the true ones: at every ε, below 0 too, their hockey-stick divergence is no smaller.

    Returns:
        None if `pld_epsilon` is infinite.
    """
    memo: Memo = {}
    if pld_epsilon(c, delta, near, memo) == math.inf:
        return None
    interval = min(memo)
    return _loss_of(c, interval, _TAIL * delta, memo), interval


def pld_epsilon_at(c: Composition, delta: float, interval: float, memo: Memo | None = None) -> float:
    """Return the bound of `pld_epsilon` at one `interval`, the cell of the privacy loss's grid (nats)."""
    if c == Composition():
        return 0.0
    if delta < _MIN_DELTA:
        return math.inf
    try:
        both = _loss_of(c, interval, _TAIL * delta, {} if memo is None else memo)
    except _GridTooLarge:
        return math.inf
    return max(_epsilon(losses, interval, delta) for losses in both)


def _first_interval(c: Composition, near: float) -> float:
    """Return an interval whose refinement is expected to be fine enough.

    Spreading a loss L over the ends of its cell adds at most interval²/4 to its variance, and at most
    interval·E|L|, which is less where L is nearly always tiny; half of that goes to its mean.
    """
    steps = sum(s.steps for s in c.sampled)
    if steps == 0:
        return near / 60
    loss = sum(s.steps * s.units * s.rate / s.z * (1 + 1 / s.z) for s in c.sampled) / steps
    allowed = 2 * _REFINEMENT**2 * _STABLE * near / steps
    return min(near / 60, max(math.sqrt(4 * allowed), allowed / loss))


def _epsilon(losses: Losses, interval: float, delta: float) -> float:
    """Return the smallest ε whose hockey-stick divergence is at most `delta`."""
    loss = interval * np.arange(losses.first, losses.first + len(losses.mass))

    def excess(epsilon: float) -> float:
        above = slice(int(np.searchsorted(loss, epsilon, side="right")), None)
        divergence = losses.lost - float(losses.mass[above] @ np.expm1(epsilon - loss[above]))
        return math.log(max(divergence, _TAIL * delta)) - math.log(delta)

    if losses.lost >= delta:
        return math.inf
    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, loss[-1], xtol=1e-13, rtol=1e-12))


def _loss_of(c: Composition, interval: float, tail: float, memo: Memo) -> Pair:
    """Return the loss of the whole composition. Each sum on the way loses `tail`, and ends of up to that mass."""
    done, begun = memo.get(interval, ((), None))
    if c.sampled[: len(done)] != done:
        done, begun = (), None
    new = c.sampled[len(done) :]
    parts = [begun] if begun is not None else []
    for few in (new[i : i + _AT_ONCE] for i in range(0, len(new), _AT_ONCE)):
        parts.append(_sums([(one_step(s.rate, s.z, interval, s.units), s.steps) for s in few], tail))
    if parts:
        parts = [_total(parts, tail)]
        memo[interval] = c.sampled, parts[0]
    if c.mu > 0:
        parts.append(one_step(1.0, 1 / c.mu, interval))
    return _total(parts, tail)


def _total(parts: list[Pair], tail: float) -> Pair:
    while len(parts) > 1:
        few = [parts[i : i + _AT_ONCE] for i in range(0, len(parts), _AT_ONCE)]
        parts = [_sums([(pair, 1) for pair in some], tail) for some in few]
    return parts[0]


def _sums(parts: list[tuple[Pair, int]], tail: float) -> Pair:
    """Return the sums of independent losses, each taken a number of times."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    there, back = ([(pair[way], times) for pair, times in parts] for way in (0, 1))
    return _sum(there, tail), _sum(back, tail)


def _sum(parts: list[tuple[Losses, int]], tail: float) -> Losses:
    first = last = 0
    log_kept = 0.0
    # ln E[e^(tilt·(sum - first))] and ln E[e^(-tilt·(sum - first))], by tilt
    log_mgf_up, log_mgf_down = np.zeros_like(_TILTS), np.zeros_like(_TILTS)
    for losses, times in parts:
        cells = len(losses.mass) - 1
        first, last = first + times * losses.first, last + times * cells
        log_kept += times * math.log1p(-losses.lost)
        log_mgf_up += times * (_log_mgf(losses.mass[::-1]) + _TILTS * cells)
        log_mgf_down += times * _log_mgf(losses.mass)
    nats = math.log(2 / tail)
    low = max(0, math.floor(((-nats - log_mgf_down) / _TILTS).max()))
    high = min(last, math.ceil(((nats + log_mgf_up) / _TILTS).min()))
    # The FFT's cells form a circle: mass outside of `low` to `high` wraps around into it, and counts as lost as well.
    size = next_fast_len(max(high - low + 1, *(len(losses.mass) for losses, _ in parts)), real=True)
    if size > _MAX_GRID:
        raise _GridTooLarge
    spectra: dict[int, NDArray[np.complex128]] = {}
    for losses, times in parts:
        spectrum = np.fft.rfft(losses.mass, size)
        spectra[times] = spectra[times] * spectrum if times in spectra else spectrum
    whole = math.prod(_power(spectrum, times) for times, spectrum in spectra.items())
    mass = np.roll(np.fft.irfft(whole, size), -(low % size))[: high - low + 1]
    return _trimmed(first + low, np.maximum(mass, 0.0), tail - math.expm1(log_kept), tail)


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """Return `base ** exponent` by squaring: numpy's own goes through logarithms and takes ten times as long."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result


def _log_mgf(mass: Array) -> Array:
    """Return ln Σ_i mass[i]·e^(-tilt·i) for each of _TILTS; each tilt's terms are the last one's squared."""
    decay = np.exp(-_TILTS[0] * np.arange(len(mass)))
    result = np.empty_like(_TILTS)
    for j in range(len(_TILTS)):
        result[j] = np.log(mass @ decay)
        decay = decay * decay
    return result


@lru_cache(maxsize=16)
def one_step(rate: float, z: float, interval: float, units: int = 1) -> Pair:
    """Return the privacy loss of a Gaussian mechanism with noise multiplier `z` on a Poisson sample, both directions.

    With the units the output is x ~ Σ_j p_j·N(j, z²), p_j = P[Bin(units, rate) = j], without them x ~ N(0, z²); the
    loss ln Σ_j p_j·e^((2jx-j²)/2z²) grows with x.
    """
    more = binom.sf(np.arange(units + 1), units, rate)
    most = int(np.argmax(more <= _RARE))
    drawn = binom.pmf(np.arange(most + 1), units, rate)
    ends = np.array([-_SIGMAS * z, most + _SIGMAS * z])
    low, high = _loss(drawn, z, ends)[0]
    first, last = math.floor(low / interval), math.ceil(high / interval)
    if last - first > _MAX_GRID or (units > 1 and (last - first) * most > _MAX_TERMS):
        raise _GridTooLarge
    edges = interval * np.arange(first, last + 1, dtype=np.float64)
    x = _inverse_loss(rate, z, edges) if units == 1 else _inverse_loss_of_group(drawn, z, edges, ends)
    without = _masses(x / z)
    with_units = sum(p * _masses((x - j) / z) for j, p in enumerate(drawn))
    remove = _connect(with_units, without, edges[:-1], interval)
    remove[0] += with_units[0]
    add = _connect(without[::-1], with_units[::-1], -edges[:0:-1], interval)
    add[0] += without[-1]
    return (
        _trimmed(first, remove, float(with_units[-1] + more[most]), _NEGLIGIBLE),
        _trimmed(-last, add, float(without[0]), _NEGLIGIBLE),
    )


def _trimmed(first: int, mass: Array, lost: float, tail: float) -> Losses:
    """Return the losses without either end's mass of up to `tail`, which counts as lost."""
    held = np.flatnonzero((np.cumsum(mass) > tail) & (np.cumsum(mass[::-1])[::-1] > tail))
    if not len(held):
        raise _GridTooLarge
    dropped = mass[: held[0]].sum() + mass[held[-1] + 1 :].sum()
    return Losses(first + int(held[0]), mass[held[0] : held[-1] + 1], lost + float(dropped))


def _connect(upper: Array, lower: Array, low_end: Array, interval: float) -> Array:
    """Return the masses at the ends of the cells, from the cells' masses under both distributions and their tails.

    Each cell's mass is split so that mass·e^(-loss) adds up to the cell's mass under `lower`.
    """
    upper, lower = upper[1:-1], lower[1:-1]
    # Where e^ε overflows, put all of the mass on the high end, which is the safe one.
    weighed = np.where(low_end < 700, lower * np.exp(np.minimum(low_end, 700.0)), 0.0)
    to_high = np.clip((upper - weighed) / -math.expm1(-interval), 0.0, upper)
    ends = np.zeros(len(upper) + 1)
    ends[:-1] += upper - to_high
    ends[1:] += to_high
    return ends


def _masses(edges: Array) -> Array:
    """Return the masses of N(0, 1) below the first edge, between the edges, and above the last, small ones exactly."""
    below, above = ndtr(edges), ndtr(-edges)
    between = np.where(edges[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([below[:1], between, above[-1:]])


def _loss(drawn: Array, z: float, x: Array) -> tuple[Array, Array]:
    """Return the loss at each x, and its slope; `drawn[j]` is the probability of j units."""
    loss, mean = np.full_like(x, -np.inf), np.full_like(x, -np.inf)
    for j in np.flatnonzero(drawn):
        term = math.log(drawn[j]) + j * (2 * x - j) / (2 * z * z)
        loss = np.logaddexp(loss, term)
        if j:
            mean = np.logaddexp(mean, term + math.log(j))
    return loss, np.exp(mean - loss) / (z * z)


def _inverse_loss_of_group(drawn: Array, z: float, loss: Array, ends: Array) -> Array:
    """Return the x at which the loss is `loss`, or the nearer of the `ends`, by Newton's method: the loss is convex."""
    table = np.linspace(ends[0], ends[1], 1 << 12)
    known = _loss(drawn, z, table)[0]
    x = np.interp(loss, known, table)
    inside = (known[0] < loss) & (loss < known[-1])
    for _ in range(_NEWTON_STEPS):
        found, slope = _loss(drawn, z, x[inside])
        if np.abs(found - loss[inside]).max(initial=0.0) <= _CLOSE * (loss[1] - loss[0]):
            return x
        x[inside] = np.clip(x[inside] - (found - loss[inside]) / slope, ends[0], ends[1])
    raise _GridTooLarge


def _inverse_loss(rate: float, z: float, loss: Array) -> Array:
    """Return the x at which the loss is `loss`; minus infinity for a loss that every x exceeds."""
    if rate == 1:
        return z * z * loss + 0.5
    beyond = loss - math.log1p(-rate)
    reached = beyond > 0
    logarithm = loss - math.log(rate) + np.log(-np.expm1(-np.where(reached, beyond, 1.0)))
    return np.where(reached, z * z * logarithm + 0.5, -np.inf)
