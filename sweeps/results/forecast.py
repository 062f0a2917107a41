"""The SER to expect at another ε or with more utterances, from the measured trials of sweeps that have ended.

The law is `SER = a + b r^0.6`, with a and b fitted to the measured trials of one corpus and model. r is the
noise-to-batch ratio of a whole training (`noise_to_batch`): what the noise of all steps adds up to, over what the
gradients of all steps can add up to. McKenna et al. (2025, arXiv 2501.18914) found that such a ratio decides how good
private training gets. For T steps on all n utterances r = z/(n √T). At one ε z grows with √T, so r depends on ε and n
alone: twice the utterances halve the noise, and twice the steps change nothing.

The exponent and the limits below are from what was measured of linear heads on a frozen encoder
(docs/log/2026-11-28-forecast.md). The law missed too often for models whose encoder is trained: these have no forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import UserError
from sweeps.config.target_epsilon import schedule_of
from sweeps.results.confirmed import comparable
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import number
from trainables.config import TrialSpec
from trainables.records.pareto import deciding

EXPONENT = 0.6
"""Exponent of the noise-to-batch ratio. With 0.5 to 0.6 the law meets every cell of heads within 20 %, with 1 it misses
some by 40 %."""
BETWEEN, BEYOND = 0.1, 0.2
"""Errors, in parts of the SER, that no measured cell of heads passed: between measured ratios, and beyond the last."""
REACH = 2.6
"""Largest factor from the nearest measured ratio, and from its SER, to a forecast: more was not held against cells."""
SPAN = 2.0
"""Smallest factor between the smallest and the largest measured ratio: on a narrower base chance decides the slope."""
ENOUGH_STEPS = 40
"""Smallest number of steps on all utterances that twice as many were measured from; of fewer, more steps do help."""
_SAME_EPSILON = 1.03


class Measured(NamedTuple):
    """The lowest SER at one noise-to-batch ratio."""

    ratio: float
    ser: float
    error: float = 0.0
    """Half the 95 % interval of `ser` over utterances."""


class Law(NamedTuple):
    """`SER = intercept + slope ratio^EXPONENT`."""

    intercept: float
    slope: float

    def at(self, ratio: float) -> float:
        """Return the SER at a noise-to-batch ratio."""
        return self.intercept + self.slope * ratio**EXPONENT


@dataclass(frozen=True)
class Forecast:
    """The SER to expect at a noise-to-batch ratio, and how far off the law may be."""

    ratio: float
    ser: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Best:
    """The trial of lowest validation SER at one ε."""

    sweep: str
    point: Point
    measured: Measured

    @property
    def epsilon(self) -> float:
        """The trial's ε."""
        return self.point.metrics["epsilon"]


def noise_to_batch(ledger: Ledger) -> float:
    """Return the standard deviation of the noise of all steps together, over the steps times the clip.

    Both in a coordinate of the mean gradient, which is no longer than the clip.

    Examples:
        >>> from edp.spec import EDPSpec
        >>> of = dict(micro_batches=50, steps_per_epoch=1, rate=1.0, single_example=True)
        >>> ratio = noise_to_batch(planned_ledger(EDPSpec(z0=10.0), epochs=4, **of))
        >>> round(ratio, 6)  # 10 / (50 √4)
        0.1
    """
    of_all = math.sqrt(sum(one.steps * (one.noise_std / one.mechanism.C) ** 2 for one in ledger.entries))
    return of_all / ledger.steps


def ratio_at(spec: TrialSpec, epsilon: float, units: int) -> float:
    """Return the noise-to-batch ratio of a configuration at a target ε.

    Args:
        units: training utterances.

    Raises:
        UserError: if no noise meets the target, or the batch is larger than the corpus.
    """
    schedule, epochs = schedule_of(spec, units), spec.training.epochs
    z0 = noise_multiplier_for_epsilon(epsilon, spec.edp, epochs=epochs, **schedule)
    return noise_to_batch(planned_ledger(spec.edp.model_copy(update={"z0": z0}), epochs=epochs, **schedule))


def fitted(points: Sequence[Measured]) -> Law:
    """Return the law of least squares. Through two points it is exact.

    Examples:
        >>> law = fitted([Measured(1.0, 0.1), Measured(32.0, 0.45)])  # 32^0.6 = 8
        >>> round(law.intercept, 6), round(law.slope, 6)
        (0.05, 0.05)
    """
    intercept, slope = _weights(points) @ [point.ser for point in points]
    return Law(float(intercept), float(slope))


def _weights(points: Sequence[Measured]) -> np.ndarray:
    """Return what each point's SER counts for in intercept and slope: a matrix of two rows."""
    return np.linalg.pinv(np.array([[1.0, point.ratio**EXPONENT] for point in points]))


def misses(points: Sequence[Measured]) -> list[float]:
    """Return for each point the error of the law of the others, in parts of the point's SER; [] for fewer than 3."""
    if len(points) < 3:
        return []
    laws = [fitted([*points[:i], *points[i + 1 :]]) for i in range(len(points))]
    return [law.at(point.ratio) / point.ser - 1 for law, point in zip(laws, points, strict=True)]


def forecast(points: Sequence[Measured], ratio: float) -> Forecast | None:
    """Return the SER to expect at a ratio; None out of reach (`REACH`).

    The law's error is `BETWEEN` measured ratios, or `BEYOND` them, or the largest of the points' own `misses` if that
    is larger. To this the range adds, as squares, what the points' errors over utterances make of the forecast.
    """
    nearest = min(points, key=lambda point: abs(math.log(point.ratio / ratio)))
    ser = fitted(points).at(ratio)
    if not all(1 / REACH <= factor <= REACH for factor in (ratio / nearest.ratio, ser / nearest.ser)):
        return None
    ratios = [point.ratio for point in points]
    margin = BETWEEN if 0.99 * min(ratios) <= ratio <= 1.01 * max(ratios) else BEYOND
    margin = max([margin, *map(abs, misses(points))])
    counts = np.array([1.0, ratio**EXPONENT]) @ _weights(points)
    both = math.hypot(margin * ser, *(counts * [point.error for point in points]))
    return Forecast(ratio, ser, max(0.0, ser - both), ser + both)


def why_none(spec: TrialSpec) -> str | None:
    """Return why a configuration has no forecast; None if the law was held against its kind."""
    if spec.model.kind != "bert" or spec.model.trainable != "heads":
        trained = "model.kind = clc" if spec.model.kind == "clc" else f"model.trainable = {spec.model.trainable}"
        return f"{trained}: allowed: heads, for which alone the law was within {BEYOND:.0%} of what was measured"
    if spec.training.method != "dpsgd":
        return f"training.method = {spec.training.method}: allowed: dpsgd"
    if spec.edp.unit != "example":
        return f"edp.unit = {spec.edp.unit}: allowed: example"
    if spec.edp.noise_correlation != "none":
        return f"edp.noise_correlation = {spec.edp.noise_correlation}: allowed: none"
    return None


def best_at_each_epsilon(name: str, sweeps: Iterable[Sweep]) -> list[Best]:
    """Return the trial of lowest validation SER at each ε, the smallest ε first. New seeds replace its own figures.

    An ε at which no trial was better than at a smaller one is left out: its trials were not the best that it allows.

    Args:
        name: what the user asked about, for messages.

    Raises:
        UserError: if the trials are too few, too much alike, or contradict the law.
    """
    found, why = list[Best](), "it has no complete trial with a guarantee; allowed: a sweep that has some"
    for sweep in sweeps:
        trials = sweep.trials()
        again = comparable(sweep, trials)
        for point in (trial.points[-1] for trial in trials if trial.state == "complete" and trial.points):
            if math.isinf(point.metrics["epsilon"]) or point.ledger is None:
                continue
            if (reason := why_none(point.spec)) is not None:
                why = reason
                continue
            figures = deciding(point.metrics | again.get(point.name, {}))
            ser, upper = figures["ser"], figures.get("ser_upper", figures["ser"])
            found.append(Best(sweep.name, point, Measured(noise_to_batch(point.ledger), ser, upper - ser)))
    if not found:
        raise UserError(f"name = {name}: {why}")
    best = _front(found)
    _check(name, best)
    return best


def _front(found: list[Best]) -> list[Best]:
    """Return the best of each ε, without those that a smaller ε has reached, too."""
    groups = list[list[Best]]()
    for one in sorted(found, key=lambda one: one.epsilon):
        if groups and one.epsilon <= groups[-1][0].epsilon * _SAME_EPSILON:
            groups[-1].append(one)
        else:
            groups.append([one])
    front = list[Best]()
    for one in (min(group, key=lambda one: one.measured.ser) for group in groups):
        if not front or one.measured.ser < front[-1].measured.ser:
            front.append(one)
    return front


def _check(name: str, best: list[Best]) -> None:
    """Raise if no law can be fitted to the measured points, or if it misses one of them.

    Raises:
        UserError: with what is needed.
    """
    points, at = [one.measured for one in best], ", ".join(number(one.epsilon) for one in best)
    ratios = [point.ratio for point in points]
    if max(ratios) < SPAN * min(ratios):
        raise UserError(
            f"name = {name}: the best trials are at ε = {at}; allowed: two ε or more at which a larger ε has a lower "
            f"SER, and whose noise differs by a factor of {SPAN:g}, such as 1 and 8 (--set edp.epsilon=null --set "
            "'space.epsilon.choice=[1, 8]', or two sweeps of one recipe)"
        )
    if min(point.ser for point in points) <= 0 or fitted(points).slope <= 0:
        raise UserError(f"name = {name}: its SER does not grow with the noise; allowed: trials whose SER does")
    if len(points) < 3:
        return
    miss, worst = max(zip(map(abs, misses(points)), best, strict=True), key=lambda pair: pair[0])
    if miss > BEYOND:
        raise UserError(
            f"name = {name}: the law of its other trials misses trial {worst.point.name} at ε = "
            f"{number(worst.epsilon)} by {miss:.0%}; allowed: trials that it meets within {BEYOND:.0%}; "
            "edp-sweep confirm measures them with new seeds"
        )
