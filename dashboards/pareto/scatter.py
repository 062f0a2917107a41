"""The scatter chart of all candidates over two quantities."""

from __future__ import annotations

import itertools
import math

from dashboards.pareto.data import Limits, PageData, within
from dashboards.pareto.style import (
    SCALES,
    THEMES,
    Chart,
    axis_range,
    axis_style,
    base_layout,
    decades,
    shade_of,
    varies,
)
from dashboards.pareto.view import drawn_interval, is_drawn, references, view_of
from sweeps.results.front import Candidate, clip_modes
from sweeps.text.figures import WORTH, Figure, epsilon_words

_INTERVALS = 60
"""The size of the largest front whose intervals are drawn; more intervals would hide each other."""
_FRONT = ("diamond", "square", "star", "hexagon")
"""The marks of the front, one for each clipping mode."""
_DOMINATED = ("circle-open", "square-open")
"""The marks of dominated candidates, in the same order."""
MANY = 1_000
"""The largest number of points off the front that are SVG elements. More are drawn by WebGL, which takes no seconds."""
_TINTS = ("rgba(56,158,92,0.20)", "rgba(56,158,92,0.09)", "rgba(128,128,128,0.10)", "rgba(128,128,128,0.22)")


def scatter(
    snapshot: PageData,
    limits: Limits,
    x: Figure,
    y: Figure,
    colour: Figure,
    theme: str,
    *,
    beside: PageData | None = None,
    narrow: bool = False,
) -> Chart:
    """Draw all candidates over two quantities, coloured by a third if it varies.

    `assets/page.js` marks the selected point, which it finds by its key, since redrawing thousands of points takes
    seconds.

    Args:
        beside: another sweep whose front is drawn too.
        narrow: whether the screen is a telephone's, where the colour bar goes above the chart.
    """
    view = view_of(snapshot, x, y, limits)
    x, y, drawn = view.x, view.y, view.drawn
    inside = {c.key for c in drawn if within(snapshot, c, limits)}
    modes = clip_modes([c.point for c in drawn])
    traces = _groups(drawn, inside, modes, x, y, colour, theme, narrow)
    others = [c for c in beside.front if is_drawn(c, x) and is_drawn(c, y)] if beside is not None else []
    if beside is not None:
        # Points of another sweep have no `customdata`, since they cannot be selected.
        marker = {"symbol": "square-open", "size": 11, "color": THEMES[theme]["ink"], "line": {"width": 1.5}}
        traces.append(_points(f"front of {beside.record.name}", others, x, y, colour) | {"marker": marker})
    shapes, lines = _reference_lines(snapshot, x, y, theme)
    xs, ys = (view.values(axis, snapshot, others) for axis in (x, y))
    notes: list[Chart] = []
    if x.key == "epsilon":
        for drawing, found in zip((shapes, notes), _bands(xs, x, theme, narrow), strict=True):
            drawing.extend(found)
    notes += _released(snapshot, drawn, x, y, theme)
    layout = base_layout(
        theme,
        xaxis=_axis(x, drawn, xs, theme, narrow),
        yaxis=_axis(y, drawn, ys, theme, False),
        shapes=shapes,
        annotations=notes,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.3 if narrow else -0.2, "yanchor": "top", "itemsizing": "constant"},
        **({"margin": {"l": 50, "r": 8, "t": 85, "b": 50}} if narrow else {}),
    )
    return {"data": [*traces, *lines], "layout": layout}


def _released(snapshot: PageData, drawn: list[Candidate], x: Figure, y: Figure, theme: str) -> list[Chart]:
    """Return an arrow at the settings that the released model has; [] if there is none, or none is drawn."""
    release = snapshot.release
    found = [c for c in drawn if release is not None and (c.point.trial, c.point.last) == (release.trial, True)]
    return [
        {axis: math.log10(c.value(of.key)) if of.log else c.value(of.key) for axis, of in (("x", x), ("y", y))}
        | {"text": "<b>released</b>", "showarrow": True, "arrowhead": 2, "ax": 30, "ay": -50}
        | {"standoff": 12, "font": {"color": THEMES[theme]["ink"]}, "arrowcolor": THEMES[theme]["ink"]}
        for c in found
    ]


def _axis(axis: Figure, drawn: list[Candidate], values: list[float], theme: str, narrow: bool) -> Chart:
    if any(isinstance(c.value(axis.key), str) for c in drawn):
        return {"type": "category", "title": {"text": axis.label}}
    few = {"tickangle": 0, "nticks": 5} | ({"dtick": decades(values, 4)} if axis.log and not axis.percent else {})
    return axis_style(axis, theme, values, **(few if narrow else {}))


def _groups(
    drawn: list[Candidate],
    inside: set[str],
    modes: dict[str, str],
    x: Figure,
    y: Figure,
    colour: Figure,
    theme: str,
    narrow: bool,
) -> list[Chart]:
    """Return a trace for each group of candidates, and one for the colour bar.

    The groups are those outside the limits, the dominated ones and the front, each by clipping mode, and the front's
    hollow points. `modes` maps candidates to their modes.
    """
    t = THEMES[theme]
    shades = {c.key: shade_of(c, colour) for c in drawn}
    known = [s for s in shades.values() if s is not None] or [0.0]
    coloured = varies(drawn, colour)
    scale = {
        "colorscale": [[i / 10, tint] for i, tint in enumerate(SCALES[theme])],
        "cmin": min(known),
        "cmax": max(known) if coloured else min(known) + 1,
    }
    front = [c for c in drawn if c.key in inside and c.on_front and not c.hollow]
    noisy = [c for c in drawn if c.key in inside and c.hollow]
    groups = [("outside the limits", [c for c in drawn if c.key not in inside], "x-thin-open", 7, 0.4)]
    dominated = [c for c in drawn if c.key in inside and not c.on_front]
    kinds = list(dict.fromkeys(modes[c.key] for c in drawn)) or [""]
    for words, symbol, mark in zip(kinds, itertools.cycle(_DOMINATED), itertools.cycle(_FRONT), strict=False):
        which = f": {words}" if len(kinds) > 1 else ""
        groups.append((f"dominated{which}", [c for c in dominated if modes[c.key] == words], symbol, 8, 0.65))
        groups.append((f"Pareto-optimal{which}", [c for c in front if modes[c.key] == words], mark, 13, 1.0))
    if noisy:
        groups.append(("on the front by MIA within noise alone", noisy, "diamond-open", 11, 0.8))
    many = len(drawn) - len(front) > MANY
    traces: list[Chart] = []
    for name, members, symbol, size, opacity in groups:
        marker: Chart = {"symbol": symbol, "size": size, "line": {"width": 1.5}}
        if symbol == "x-thin-open":
            marker["color"] = t["muted"]
        elif not coloured:
            marker["color"] = SCALES[theme][5]
        else:
            marker |= scale | {"color": [max(known) if (s := shades[c.key]) is None else s for c in members]}
        bars: Chart = {}
        if symbol in _FRONT:
            marker["line"] = {"width": 1, "color": t["ink"]}
            if len(members) <= _INTERVALS:
                bars = {f"error_{way}": _error_bars(members, axis, t["muted"]) for way, axis in (("x", x), ("y", y))}
        trace = _points(name, members, x, y, colour) | {
            "customdata": [c.key for c in members],
            "meta": {way: _intervals(members, axis) for way, axis in (("x", x), ("y", y))},
            "opacity": opacity,
            "showlegend": bool(members),
            "marker": marker,
        }
        apart = {"type": "scattergl"} if many and symbol in (*_DOMINATED, "x-thin-open") else {}
        traces.append(trace | bars | apart)
    if coloured:
        # The colour bar has its own trace, so that it stays if no point is within the limits.
        traces.append(
            {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "showlegend": False, "hoverinfo": "skip"}
            | {"marker": scale | {"color": [max(known)], "showscale": True, "colorbar": _colour_bar(colour, narrow)}}
        )
    return traces


def _points(name: str, members: list[Candidate], x: Figure, y: Figure, colour: Figure) -> Chart:
    """Return a trace of candidates, without its marker."""
    return (
        {"type": "scatter", "mode": "markers", "name": name}
        | {"x": [c.value(x.key) for c in members], "y": [c.value(y.key) for c in members]}
        | {"text": [_label(c, [x, y, colour]) for c in members], "hovertemplate": "%{text}<extra></extra>"}
    )


def _label(candidate: Candidate, axes: list[Figure]) -> str:
    """Return the text that a point shows under the pointer: the drawn quantities, its ε and its settings."""
    lines = [f"{a.label}: {a.text(candidate.value(a.key))}" for a in axes if not a.key.startswith("epsilon")]
    lines += epsilon_words(candidate.metrics)
    params = ", ".join(f"{k} {Figure(k, k).text(v)}" for k, v in candidate.params.items())
    note = "Pareto-optimal" if candidate.on_front else "dominated"
    return f"<b>{candidate.name}</b> ({note})<br>" + "<br>".join(lines) + f"<br>{params}"


def _intervals(members: list[Candidate], axis: Figure) -> list[tuple[float, float] | None]:
    """Return the intervals of an axis; [] if it has none."""
    found = [drawn_interval(c, axis) for c in members]
    return found if any(found) else []


def _colour_bar(colour: Figure, narrow: bool) -> Chart:
    """Return the colour bar: beside the chart, or above it on a narrow screen."""
    above = {"orientation": "h", "x": 0.5, "y": 1.08, "yanchor": "bottom", "thickness": 10, "nticks": 5}
    title = {"text": f"log10 {colour.label}" if colour.log else colour.label, "side": "top" if narrow else "right"}
    place = above if narrow else {"thickness": 14}
    return {"title": title, "outlinewidth": 0, "tickformat": ".3~p" if colour.percent else ""} | place


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


def _bands(values: list[float], x: Figure, theme: str, narrow: bool) -> tuple[list[Chart], list[Chart]]:
    """Return shapes that shade the tiers of ε behind the points, and their labels."""
    low, high = axis_range(x, values)
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
        if right - left > len(words) * (0.021 if narrow else 0.009) * (high - low):
            notes.append(
                {"text": words, "x": (left + right) / 2, "xref": "x", "y": 1, "yref": "paper", "yanchor": "bottom"}
                | {"showarrow": False, "font": {"size": 11, "color": THEMES[theme]["muted"]}}
            )
    return shapes, notes


def _reference_lines(snapshot: PageData, x: Figure, y: Figure, theme: str) -> tuple[list[Chart], list[Chart]]:
    """Return dashed lines at the SGD baseline, dotted ones at an attack that guesses, and a trace of each.

    The traces are empty. They put the lines' names into the legend, where they cover no point.
    """
    shapes: list[Chart] = []
    looks: dict[str, Chart] = {}
    for axis, along, across in ((x, "x", "y"), (y, "y", "x")):
        for name, value, dash in references(snapshot, axis):
            looks[name] = {"dash": dash, "width": 1.5, "color": THEMES[theme]["muted"]}
            refs = {f"{across}ref": "paper", f"{along}ref": along}
            shapes.append(
                {"type": "line", f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1}
                | {"line": looks[name], "layer": "below", **refs}
            )
    return shapes, [
        {"type": "scatter", "mode": "lines", "x": [None], "y": [None], "hoverinfo": "skip", "line": look, "name": name}
        for name, look in looks.items()
    ]
