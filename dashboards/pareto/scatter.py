"""The scatter chart of all candidates over two quantities, and the range that it opens with.

Charts are plain dictionaries: Plotly's objects take ten times longer to build.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from plotly.colors import sample_colorscale

from dashboards.pareto.data import Limits, PageData, is_number, within
from sweeps.results.front import Candidate
from sweeps.text.figures import MEANINGFUL, NO_GUARANTEE, WORTH, Figure, epsilon_words
from trainables.records.pareto import GUESSING

Chart = dict[str, Any]

_PAPER, _INK, _MUTED, _GRID = "#ffffff", "#1f2933", "#7b8794", "#e4e7eb"
_SCALE = sample_colorscale("Viridis", [i / 10 * 0.88 for i in range(11)])
"""Viridis, without the end that is too close to the background."""
_INTERVALS = 60
"""The size of the largest front whose intervals are drawn; more intervals would hide each other."""
_DECADE = 10.0
"""The smallest ratio of the largest SER to the smallest that makes its axis logarithmic."""
MANY = 1_000
"""The largest number of points off the front that are SVG elements. More are drawn by WebGL, which takes no seconds."""
_TINTS = ("rgba(56,158,92,0.20)", "rgba(56,158,92,0.09)", "rgba(128,128,128,0.10)", "rgba(128,128,128,0.22)")


def scatter(snapshot: PageData, limits: Limits, x: Figure, y: Figure, colour: Figure) -> Chart:
    """Draw all candidates over two quantities, coloured by a third if it varies.

    `assets/page.js` marks the selected point, which it finds by its key, since redrawing thousands of points takes
    seconds.
    """
    view = view_of(snapshot, x, y, limits)
    x, y, drawn = view.x, view.y, view.drawn
    inside = {c.key for c in drawn if within(snapshot, c, limits)}
    traces = _groups(drawn, inside, x, y, colour)
    shapes, lines = _reference_lines(snapshot, x, y)
    xs, ys = (view.values(axis, snapshot) for axis in (x, y))
    notes: list[Chart] = []
    if x.key == "epsilon":
        for drawing, found in zip((shapes, notes), _bands(xs, x), strict=True):
            drawing.extend(found)
    notes += _released(snapshot, drawn, x, y)
    layout = {
        "paper_bgcolor": _PAPER,
        "plot_bgcolor": "rgba(0,0,0,0)",  # points by WebGL lie below it
        "font": {"color": _INK, "family": "system-ui, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 40, "b": 55},
        "hoverlabel": {"bgcolor": _PAPER, "bordercolor": _MUTED, "font": {"color": _INK}},
        "uirevision": "kept",  # zoom and legend survive a refresh
        "hovermode": "closest",
        "xaxis": _axis(x, xs),
        "yaxis": _axis(y, ys),
        "shapes": shapes,
        "annotations": notes,
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "itemsizing": "constant"},
    }
    return {"data": [*traces, *lines], "layout": layout}


def _released(snapshot: PageData, drawn: list[Candidate], x: Figure, y: Figure) -> list[Chart]:
    """Return an arrow at the settings that the released model has; [] if there is none, or none is drawn."""
    release = snapshot.release
    found = [c for c in drawn if release is not None and (c.point.trial, c.point.last) == (release.trial, True)]
    return [
        {axis: math.log10(c.value(of.key)) if of.log else c.value(of.key) for axis, of in (("x", x), ("y", y))}
        | {"text": "<b>released</b>", "showarrow": True, "arrowhead": 2, "ax": 30, "ay": -50}
        | {"standoff": 12, "font": {"color": _INK}, "arrowcolor": _INK}
        for c in found
    ]


def _axis(axis: Figure, values: list[float]) -> Chart:
    """Return the style of an axis whose quantity takes `values`."""
    logs = [math.log10(v) for v in values if v > 0] or [0.0]
    decades = max(1, math.ceil((max(logs) - min(logs)) / 8))  # at most eight ticks
    low, high = _range(axis, values)
    shares = [
        d * 10.0**k
        for k in range(math.floor(low), math.ceil(high))
        for d in ((1, 2, 5) if high - low < 1.2 else (1, 3))
    ]
    return {
        "title": {"text": axis.label, "standoff": 10},
        "type": "log" if axis.log else "linear",
        "range": [low, high],
        "gridcolor": _GRID,
        "linecolor": _MUTED,
        "zeroline": False,
        "tickformat": ".3~p" if axis.percent else "",
        "exponentformat": "power",
        "automargin": True,
    } | ({} if not axis.log else {"tickvals": shares} if axis.percent else {"dtick": decades})


def _groups(drawn: list[Candidate], inside: set[str], x: Figure, y: Figure, colour: Figure) -> list[Chart]:
    """Return a trace for each group of candidates, and one for the colour bar.

    The groups are those outside the limits, the dominated ones, the front, and its hollow points.
    """
    shades = {c.key: shade_of(c, colour) for c in drawn}
    known = [s for s in shades.values() if s is not None] or [0.0]
    scale: Chart = {"colorscale": [[i / 10, tint] for i, tint in enumerate(_SCALE)]}
    scale |= {"cmin": min(known), "cmax": max(*known, min(known) + 1e-9)}
    front = [c for c in drawn if c.key in inside and c.on_front and not c.hollow]
    noisy = [c for c in drawn if c.key in inside and c.hollow]
    groups = [("outside the limits", [c for c in drawn if c.key not in inside], "x-thin-open", 7, 0.4)]
    dominated = [c for c in drawn if c.key in inside and not c.on_front]
    groups += [("dominated", dominated, "circle-open", 8, 0.65), ("Pareto-optimal", front, "diamond", 13, 1.0)]
    if noisy:
        groups.append(("on the front by MIA within noise alone", noisy, "diamond-open", 11, 0.8))
    many = len(drawn) - len(front) > MANY
    traces: list[Chart] = []
    for name, members, symbol, size, opacity in groups:
        marker: Chart = {"symbol": symbol, "size": size, "line": {"width": 1.5}}
        if symbol == "x-thin-open":
            marker["color"] = _MUTED
        else:
            marker |= scale | {"color": [max(known) if (s := shades[c.key]) is None else s for c in members]}
        bars: Chart = {}
        if symbol == "diamond":
            marker["line"] = {"width": 1, "color": _INK}
            if len(members) <= _INTERVALS:
                bars = {f"error_{way}": _error_bars(members, axis, _MUTED) for way, axis in (("x", x), ("y", y))}
        by_webgl = many and symbol in ("circle-open", "x-thin-open")
        # The text of each of thousands of points takes seconds to send; a click shows it.
        label = _short_label(name, x, y) if by_webgl else _labels(members, [x, y, colour])
        traces.append(
            {"type": "scattergl" if by_webgl else "scatter", "mode": "markers", "name": name, "marker": marker}
            | {"x": [c.value(x.key) for c in members], "y": [c.value(y.key) for c in members]}
            | {"customdata": [c.key for c in members], "opacity": opacity, "showlegend": bool(members)}
            | label
            | bars
        )
    # The colour bar has its own trace, so that it stays if no point is within the limits.
    traces.append(
        {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "showlegend": False, "hoverinfo": "skip"}
        | {"marker": scale | {"color": [max(known)], "showscale": True, "colorbar": _colour_bar(colour)}}
    )
    return traces


def _labels(members: list[Candidate], axes: list[Figure]) -> Chart:
    """Return what points show under the pointer: the drawn quantities, their ε and their settings."""

    def text(one: Candidate) -> str:
        lines = [f"{a.label}: {a.text(one.value(a.key))}" for a in axes if not a.key.startswith("epsilon")]
        lines += epsilon_words(one.metrics)
        params = ", ".join(f"{k} {Figure(k, k).text(v)}" for k, v in one.params.items())
        note = "Pareto-optimal" if one.on_front else "dominated"
        return f"<b>{one.name}</b> ({note})<br>" + "<br>".join(lines) + f"<br>{params}"

    return {"text": [text(one) for one in members], "hovertemplate": "%{text}<extra></extra>"}


def _short_label(name: str, x: Figure, y: Figure) -> Chart:
    """Return what points of a group show under the pointer, made by the browser: the drawn quantities."""
    shown = (f"{a.label}: about %{{{at}:{'.3~p' if a.percent else '.3~g'}}}" for at, a in (("x", x), ("y", y)))
    return {"hovertemplate": "<br>".join([f"<b>Trial %{{customdata}}</b> ({name})", *shown]) + "<extra></extra>"}


def _colour_bar(colour: Figure) -> Chart:
    title = {"text": f"log10 {colour.label}" if colour.log else colour.label, "side": "right"}
    return {"title": title, "outlinewidth": 0, "tickformat": ".3~p" if colour.percent else "", "thickness": 14}


def _error_bars(members: list[Candidate], axis: Figure, colour: str) -> Chart:
    """Return the 95 % intervals as error bars; hide them if no candidate has one."""
    ends = [drawn_interval(c, axis) or (c.value(axis.key),) * 2 for c in members]
    if all(low == high for low, high in ends):
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - c.value(axis.key) for (_, high), c in zip(ends, members, strict=True)],
        "arrayminus": [c.value(axis.key) - low for (low, _), c in zip(ends, members, strict=True)],
        "thickness": 1,
        "width": 0,
        "color": colour,
    }


def _bands(values: list[float], x: Figure) -> tuple[list[Chart], list[Chart]]:
    """Return shapes that shade the tiers of ε behind the points, and their labels."""
    low, high = _range(x, values)
    tiers = [*((math.log10(top), words) for top, words in WORTH), (math.inf, "no formal guarantee")]
    shapes: list[Chart] = []
    notes: list[Chart] = []
    start = -math.inf
    for (top, words), tint in zip(tiers, _TINTS, strict=True):
        left, right = max(low, start), min(high, top)
        start = top
        if right <= left:
            continue
        shapes.append(
            {"type": "rect", "xref": "x", "yref": "paper", "x0": 10.0**left, "x1": 10.0**right, "y0": 0, "y1": 1}
            | {"fillcolor": tint, "line": {"width": 0}, "layer": "below"}
        )
        # A label has its place above the chart, where no point is. One without room there is left to the text below.
        if right - left > len(words) * 0.009 * (high - low):
            notes.append(
                {"text": words, "x": (left + right) / 2, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom"}
                | {"showarrow": False, "font": {"size": 11, "color": _MUTED}, "yshift": 12 * (len(notes) % 2)}
            )
    return shapes, notes


def _reference_lines(snapshot: PageData, x: Figure, y: Figure) -> tuple[list[Chart], list[Chart]]:
    """Return dashed lines at the SGD baseline, dotted ones at an attack that guesses, and a trace of each.

    The traces are empty. They put the lines' names into the legend, where they cover no point.
    """
    shapes: list[Chart] = []
    looks: dict[str, Chart] = {}
    for axis, along, across in ((x, "x", "y"), (y, "y", "x")):
        for name, value, dash in references(snapshot, axis):
            looks[name] = {"dash": dash, "width": 1.5, "color": _MUTED}
            refs = {f"{across}ref": "paper", f"{along}ref": along}
            shapes.append(
                {"type": "line", f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1}
                | {"line": looks[name], "layer": "below", **refs}
            )
    return shapes, [
        {"type": "scatter", "mode": "lines", "x": [None], "y": [None], "hoverinfo": "skip", "line": look, "name": name}
        for name, look in looks.items()
    ]


def _range(axis: Figure, values: list[float]) -> list[float]:
    """Return the values' range with a margin; in log10 for a logarithmic axis."""
    found = [math.log10(v) if axis.log else v for v in values if is_number(v) and (v > 0 or not axis.log)] or [0.0, 1.0]
    low, high = min(found), max(found)
    room = 0.07 * (high - low) or 0.1 * abs(high) or 0.5
    return [low - room, high + room]


def shade_of(candidate: Candidate, axis: Figure) -> float | None:
    """Return the number that sets a candidate's colour, in log10 for a logarithmic axis; None if it has no value."""
    value = candidate.value(axis.key)
    if not is_number(value) or (axis.log and value <= 0):
        return None
    return math.log10(value) if axis.log else float(value)


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
    """Return the view of all candidates over two quantities.

    Those without a guarantee are outside its range if some candidate within the limits has one.
    """
    every = list(snapshot.candidates.values())
    x, y = (scaled(axis, every) for axis in (x, y))
    drawn = [c for c in every if is_drawn(c, x) and is_drawn(c, y)]
    useful = any(c.value("epsilon") <= MEANINGFUL for c in drawn if within(snapshot, c, limits))
    keys = [axis.key for axis in (x, y) if useful and axis.key.startswith("epsilon")]
    outside = [c for c in drawn if any(c.value(key) > NO_GUARANTEE for key in keys)]
    return View(x, y, drawn, outside)


def scaled(axis: Figure, found: Sequence[Candidate]) -> Figure:
    """Return the axis, logarithmic if it is an SER that varies by a factor of ten or more."""
    values = [c.value(axis.key) for c in found if is_number(c.value(axis.key))]
    wide = bool(values) and min(values) > 0 and max(values) >= _DECADE * min(values)
    return replace(axis, log=True) if axis.key in ("valid_ser", "ser") and wide else axis


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
