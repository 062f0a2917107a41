"""The part of a quantity that a chart opens with: the region of the decision, which no single bad point sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboards.pareto.data import Limits, PageData, is_number, within
from sweeps.results.front import Candidate
from sweeps.text.figures import MEANINGFUL, NO_GUARANTEE, Figure
from trainables.records.pareto import GUESSING

_DECADE = 10.0
"""The smallest ratio of the largest SER to the smallest that makes its axis logarithmic."""
_FAR = 1.5
"""An outlier is farther from all else than this many times the range of all else."""
_RARE = 10
"""At most one candidate in so many, but at least one, counts as an outlier."""


@dataclass(frozen=True)
class View:
    """Two axes as they are drawn, the candidates that can be drawn, and those among them outside the opening range."""

    x: Figure
    y: Figure
    drawn: list[Candidate]
    outside: list[Candidate]

    def values(self, axis: Figure, snapshot: PageData) -> list[float]:
        """Return the values that the opening range of an axis must hold."""
        out = {candidate.key for candidate in self.outside}
        return _values(axis, [c for c in self.drawn if c.key not in out], snapshot)

    def note(self) -> str:
        """Return a sentence on the candidates outside the opening range; "" if there are none."""
        if not self.outside:
            return ""
        n = len(self.outside)
        few = f"{n} of {len(self.drawn)} points {'is' if n == 1 else 'are'}"
        return f"{few} outside the range that is shown: a double click in the chart shows all. "


def view_of(snapshot: PageData, x: Figure, y: Figure, limits: Limits) -> View:
    """Return the view of all candidates over two quantities. It holds the recommendation within the limits."""
    every = list(snapshot.candidates.values())
    x, y = (scaled(axis, every) for axis in (x, y))
    drawn = [c for c in every if is_drawn(c, x) and is_drawn(c, y)]
    advised = snapshot.advice(limits).point
    useful = any(c.value("epsilon") <= MEANINGFUL for c in drawn if within(snapshot, c, limits))
    out = {c.key for axis in (x, y) for c in _outliers(axis, drawn, snapshot, useful)}
    return View(x, y, drawn, [c for c in drawn if c.key in out and (advised is None or c.key != advised.name)])


def scaled(axis: Figure, found: Sequence[Candidate]) -> Figure:
    """Return the axis, logarithmic if it is an SER that varies by a factor of ten or more."""
    values = [c.value(axis.key) for c in found if is_number(c.value(axis.key))]
    wide = bool(values) and min(values) > 0 and max(values) >= _DECADE * min(values)
    return replace(axis, log=True) if axis.key in ("valid_ser", "ser") and wide else axis


def _outliers(axis: Figure, drawn: Sequence[Candidate], snapshot: PageData, useful: bool) -> list[Candidate]:
    """Return the candidates that an opening range leaves out.

    Of ε, those without a guarantee, if some candidate within the limits has one (`useful`). Of other quantities, a few
    of the worst values, if they are far from everything else. A logarithmic SER is wide enough for all.
    """
    known = [(float(value), c) for c in drawn if is_number(value := c.value(axis.key))]
    ordered = sorted(known, key=lambda pair: pair[0])
    if axis.key.startswith("epsilon"):
        return [c for value, c in ordered if useful and value > NO_GUARANTEE]
    if axis.log or not axis.better:
        return []
    worst_last = ordered if axis.better == "lower" else ordered[::-1]
    # The range of all candidates up to each one, so that each place of the cut takes one step and not another pass.
    fixed = _values(axis, [], snapshot)
    low, high = min(fixed, default=math.inf), max(fixed, default=-math.inf)
    ranges: list[tuple[float, float]] = []
    for value, candidate in worst_last:
        ends = (drawn_interval(candidate, axis) if candidate.on_front else None) or (value, value)
        low, high = min(low, value, ends[0]), max(high, value, ends[1])
        ranges.append((low, high))
    for n in range(min(max(1, len(ordered) // _RARE), len(ordered) - 2), 0, -1):
        nearest, (low, high) = worst_last[-n][0], ranges[-n - 1]
        if max(nearest - high, low - nearest) > _FAR * (high - low):
            return [c for _, c in worst_last[-n:]]
    return []


def _values(axis: Figure, found: Sequence[Candidate], snapshot: PageData) -> list[float]:
    """Return the values of candidates, the front's intervals, and the reference lines of an axis."""
    values = [float(value) for c in found if is_number(value := c.value(axis.key))]
    values += [end for c in found if c.on_front for end in drawn_interval(c, axis) or ()]
    values += [value for _, value, _ in references(snapshot, axis)]
    return values + ([1.0, MEANINGFUL] if axis.key == "epsilon" else [])


def references(snapshot: PageData, axis: Figure) -> list[tuple[str, float, str]]:
    """Return the name, the value and the dash of each reference line: SGD, the schema alone, an attack that guesses."""
    found = (
        ("SGD, without privacy", snapshot.baseline.get(axis.key), "dash"),
        ("schema alone", snapshot.schema_only.get(axis.key), "dashdot"),
        ("guessing", GUESSING.get(axis.key.removeprefix("valid_")), "dot"),
    )
    return [(name, v, dash) for name, v, dash in found if is_number(v) and (v > 0 or not axis.log)]


def drawn_interval(candidate: Candidate, axis: Figure) -> tuple[float, float] | None:
    """Return a metric's interval as an axis can show it: above 0 on a logarithmic one. None without an interval."""
    ends, value = candidate.interval(axis.key), candidate.value(axis.key)
    if ends is None or not axis.log or ends[0] > 0:
        return ends
    return value / math.sqrt(_DECADE), ends[1]


def is_drawn(candidate: Candidate, axis: Figure) -> bool:
    """Return True if a candidate has a value that the axis can show."""
    value = candidate.value(axis.key)
    return is_number(value) and (value > 0 or not axis.log)
