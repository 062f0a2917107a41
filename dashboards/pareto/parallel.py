"""The chart of parallel coordinates: all candidates, setting by setting."""

from __future__ import annotations

import math
from typing import Any

from plotly.colors import sample_colorscale

from dashboards.pareto.data import Axis, Candidate, Limits, Snapshot, is_number, text, within
from dashboards.pareto.dense import MANY, dense
from dashboards.pareto.style import SCALES, THEMES, Figure, base_layout, shade_of, varies

_BINS = 8
_MANY = 300
"""With more lines than this only the front's have a hover text: the texts of all would take a megabyte."""


def parallel(snapshot: Snapshot, limits: Limits, axes: list[Axis], colour: Axis, theme: str) -> Figure:
    """Draw parallel coordinates: a line per candidate across its settings and metrics.

    The chart consists of scatter lines. Plotly's own chart of parallel coordinates needs WebGL, cannot be clicked, and
    shows the front by colour alone.
    """
    t = THEMES[theme]
    places = {axis.key: _Scale(axis, snapshot) for axis in axes}
    shown = [c for c in snapshot.candidates.values() if within(snapshot, c, limits)]
    shades = {c.key: shade_of(c, colour) for c in shown}
    known = [s for s in shades.values() if s is not None] or [0.0]
    low, high, coloured = min(known), max(known), varies(shown, colour)

    def bin_of(candidate: Candidate) -> int:
        shade = shades[candidate.key]
        if shade is None or not coloured:
            return _BINS - 1
        return min(_BINS - 1, int(_BINS * (shade - low) / (high - low)))

    dominated = [c for c in shown if not c.on_front]
    trace = _lines(dominated, axes, places, "dominated", named=len(shown) <= _MANY)
    trace |= {"line": {"color": t["muted"], "width": 1, "dash": "dot"}, "opacity": 0.45}
    traces = [dense(trace) if len(dominated) > MANY else trace]
    for i in range(_BINS):
        members = [c for c in shown if c.on_front and bin_of(c) == i]
        tint = sample_colorscale(SCALES[theme], [(i + 0.5) / _BINS])[0]
        traces.append(_lines(members, axes, places, "Pareto-optimal") | {"line": {"color": tint, "width": 2.5}})
    shapes: list[Figure] = []
    notes: list[Figure] = []
    for i, axis in enumerate(axes):
        shapes.append(_vertical(i, 0, 1, t["muted"], 1.5))
        place = places[axis.key]
        if axis.key in limits and (top := place(limits[axis.key])) is not None:
            shapes.append(_vertical(i, 0, min(max(top, 0), 1), t["accent"], 6) | {"opacity": 0.45})
        # A long name takes several lines, or it would overlap its neighbours.
        header = axis.short.replace(".", ".<br>").replace(" validation", "<br>validation")
        notes.append(_note(i, 1.1, f"<b>{header}</b>", t["ink"]) | {"yanchor": "bottom"})
        notes += [_note(i, at, label, t["ink"], background=t["paper"]) for at, label in place.marks]
    layout = base_layout(
        theme,
        xaxis={"visible": False, "range": [-0.5, len(axes) - 0.5], "fixedrange": True},
        yaxis={"visible": False, "range": [-0.12, 1.3], "fixedrange": True},
        margin={"l": 5, "r": 5, "t": 5, "b": 5},
        shapes=shapes,
        annotations=notes,
        showlegend=False,
    )
    return {"data": traces, "layout": layout}


class _Scale:
    """A function from a value to its position on an axis, 0 to 1; `marks` are the labels beside the axis."""

    def __init__(self, axis: Axis, snapshot: Snapshot) -> None:
        found = [c.value(axis.key) for c in snapshot.candidates.values()]
        # If one trial's value is a word, such as a full batch, all values are shown as words.
        words = any(isinstance(v, str) for v in found)
        self._words = sorted({str(v) for v in found if isinstance(v, str) or is_number(v)}) if words else []
        self._log = axis.log
        numbers = [float(v) for v in found if is_number(v)] or [0.0]
        low, high = min(numbers), max(numbers)
        self._low, self._high = (math.log10(low), math.log10(high)) if axis.log else (low, high)
        if self._words:
            self.marks = [(self(word) or 0.0, word) for word in self._words]
        else:
            self.marks = [(-0.06, text(axis, low)), (1.06, text(axis, high))]

    def __call__(self, value: Any) -> float | None:
        if self._words:
            value = str(value)
            n = len(self._words)
            return 0.5 if n < 2 else self._words.index(value) / (n - 1) if value in self._words else None
        if not isinstance(value, int | float) or math.isnan(value):
            return None
        if math.isinf(value):
            return 1.04
        at = math.log10(max(value, 1e-12)) if self._log else value
        return round((at - self._low) / (self._high - self._low), 4) if self._high > self._low else 0.5


def _lines(
    members: list[Candidate], axes: list[Axis], places: dict[str, _Scale], name: str, named: bool = True
) -> Figure:
    """Return one trace of many lines, with a gap after each, and with a hover text if they are `named`."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    keys: list[str | None] = []
    words: list[str | None] = []
    for c in members:
        values = [c.value(axis.key) for axis in axes]
        xs += [*range(len(axes)), None]
        ys += [*(places[axis.key](value) for axis, value in zip(axes, values, strict=True)), None]
        keys += [*[c.key] * len(axes), None]
        if named:
            words += [f"<b>{c.name}</b><br>{a.label}: {text(a, v)}" for a, v in zip(axes, values, strict=True)] + [None]
    points = {"x": xs, "y": ys, "customdata": keys, "text": words}
    hover = {"hovertemplate": "%{text}<extra>" + name + "</extra>"}
    nothing = {"text": None, "hovertemplate": None, "hoverinfo": "none"}
    return {"type": "scatter", "mode": "lines", "name": name} | points | (hover if named else nothing)


def _vertical(x: float, y0: float, y1: float, colour: str, width: float) -> Figure:
    return {"type": "line", "x0": x, "x1": x, "y0": y0, "y1": y1, "layer": "below"} | {
        "line": {"color": colour, "width": width}
    }


def _note(x: float, y: float, words: str, colour: str, background: str | None = None) -> Figure:
    style: Figure = {"font": {"size": 12, "color": colour}, "showarrow": False, "xanchor": "center"}
    if background:
        style |= {"bgcolor": background, "opacity": 0.9}
    return {"x": x, "y": y, "text": words, "yanchor": "middle"} | style
