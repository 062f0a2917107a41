"""All candidates over two quantities."""

from __future__ import annotations

import math

from dashboards.pareto.data import Axis, Candidate, Limits, Snapshot, is_number, text, within
from dashboards.pareto.style import SCALES, THEMES, Figure, axis_style, base_layout, shade_of, varies
from sweeps.formatting.figures import epsilon_words


def scatter(
    snapshot: Snapshot, limits: Limits, selected: str | None, x: Axis, y: Axis, colour: Axis, theme: str
) -> Figure:
    """All candidates over two quantities, coloured by a third if it varies; the front's, within limits, in full."""
    drawn = [c for c in snapshot.candidates.values() if _drawn(c, x, y)]
    traces = _groups(snapshot, drawn, {c.key for c in drawn if within(c, limits)}, x, y, colour, theme)
    chosen = snapshot.candidates.get(selected or "")
    if chosen is not None and _drawn(chosen, x, y):
        traces += _selected(drawn, chosen, x, y, THEMES[theme]["accent"])
    shapes, notes = _reference_lines(snapshot, x, y, theme)
    xs, ys = (
        [float(c.value(a.key)) for c in drawn if is_number(c.value(a.key))]
        + [v for v in [snapshot.baseline.get(a.key)] if is_number(v)]
        + [end for c in drawn if c.on_front for end in c.interval(a.key) or ()]
        for a in (x, y)
    )
    layout = base_layout(
        theme,
        xaxis=axis_style(x, theme, xs) if not _words(drawn, x) else {"type": "category", "title": {"text": x.label}},
        yaxis=axis_style(y, theme, ys) if not _words(drawn, y) else {"type": "category", "title": {"text": y.label}},
        shapes=shapes,
        annotations=notes,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "itemsizing": "constant"},
    )
    return {"data": traces, "layout": layout}


def _groups(
    snapshot: Snapshot, drawn: list[Candidate], inside: set[str], x: Axis, y: Axis, colour: Axis, theme: str
) -> list[Figure]:
    """What is outside the limits, dominated, and on the front: a trace each, and one for the key to the colours."""
    t = THEMES[theme]
    shades = {c.key: shade_of(c, colour) for c in drawn}
    known = [s for s in shades.values() if s is not None] or [0.0]
    coloured = varies(known, colour)
    scale = {
        "colorscale": [[i / 10, tint] for i, tint in enumerate(SCALES[theme])],
        "cmin": min(known),
        "cmax": max(known) if coloured else min(known) + 1,
    }
    groups = (
        ("outside the limits", [c for c in drawn if c.key not in inside], "x-thin-open", 7, 0.4),
        ("dominated", [c for c in drawn if c.key in inside and not c.on_front], "circle-open", 8, 0.65),
        ("Pareto-optimal", [c for c in drawn if c.key in inside and c.on_front], "diamond", 13, 1.0),
    )
    traces: list[Figure] = []
    for name, members, symbol, size, opacity in groups:
        marker: Figure = {"symbol": symbol, "size": size, "line": {"width": 1.5}}
        if symbol == "x-thin-open":
            marker["color"] = t["muted"]
        elif not coloured:
            marker["color"] = SCALES[theme][5]
        else:
            marker |= scale | {"color": [max(known) if (s := shades[c.key]) is None else s for c in members]}
        if symbol == "diamond":
            marker["line"] = {"width": 1, "color": t["ink"]}
        trace: Figure = {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [c.value(x.key) for c in members],
            "y": [c.value(y.key) for c in members],
            "customdata": [c.key for c in members],
            "text": [_hover(snapshot, c, [x, y, colour]) for c in members],
            "hovertemplate": "%{text}<extra></extra>",
            "opacity": opacity,
            "showlegend": bool(members),
            "marker": marker,
        }
        traces.append(trace)
    if coloured:
        # The key to the colours is a trace of its own, so that it stays when limits leave no point.
        traces.append(
            {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "showlegend": False, "hoverinfo": "skip"}
            | {"marker": scale | {"color": [max(known)], "showscale": True, "colorbar": _key(colour)}}
        )
    return traces


def _selected(drawn: list[Candidate], chosen: Candidate, x: Axis, y: Axis, colour: str) -> list[Figure]:
    """The chosen candidate ringed, with its intervals, and where training it longer leads."""
    path = sorted((c for c in drawn if c.trial == chosen.trial), key=lambda c: c.point.epoch)
    return [
        {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False}
        | {"x": [c.value(x.key) for c in path], "y": [c.value(y.key) for c in path]}
        | {"line": {"color": colour, "width": 1.5, "dash": "dot"}},
        {"type": "scatter", "mode": "markers", "name": f"selected: {chosen.name}", "hoverinfo": "skip"}
        | {"x": [chosen.value(x.key)], "y": [chosen.value(y.key)]}
        | {f"error_{along}": _error_bar(chosen, axis, colour) for along, axis in (("x", x), ("y", y))}
        | {"marker": {"symbol": "circle-open", "size": 26, "color": colour, "line": {"width": 3}}},
    ]


def _words(drawn: list[Candidate], axis: Axis) -> bool:
    return any(isinstance(c.value(axis.key), str) for c in drawn)


def _key(colour: Axis) -> Figure:
    return {
        "title": {"text": f"log10 {colour.label}" if colour.log else colour.label, "side": "right"},
        "thickness": 14,
        "outlinewidth": 0,
        "tickformat": ".0%" if colour.percent else "",
    }


def _error_bar(candidate: Candidate, axis: Axis, colour: str) -> Figure:
    """The confidence interval, where one was estimated."""
    interval, value = candidate.interval(axis.key), candidate.value(axis.key)
    if interval is None:
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [interval[1] - value],
        "arrayminus": [value - interval[0]],
        "thickness": 1.5,
        "width": 5,
        "color": colour,
    }


def _reference_lines(snapshot: Snapshot, x: Axis, y: Axis, theme: str) -> tuple[list[Figure], list[Figure]]:
    """The SGD baseline: a dashed line on each axis that it has a value on, with that value beside it."""
    t = THEMES[theme]
    shapes, notes = [], []
    line = {"dash": "dash", "width": 1.5, "color": t["muted"]}
    for axis, across in ((x, "y"), (y, "x")):
        value = snapshot.baseline.get(axis.key)
        if not is_number(value) or (axis.log and value <= 0):
            continue
        along = "x" if across == "y" else "y"
        at = math.log10(value) if axis.log else value
        shapes.append(
            {"type": "line", f"{along}0": value, f"{along}1": value, f"{across}0": 0, f"{across}1": 1}
            | {f"{across}ref": "paper", f"{along}ref": along, "line": line, "layer": "below"}
        )
        notes.append(
            {"text": f"SGD {text(axis, value)}", "showarrow": False, "font": {"color": t["muted"], "size": 12}}
            | {along: at, f"{along}ref": along, f"{across}ref": "paper", across: 1}
            | (
                {"xanchor": "center", "yanchor": "bottom"}
                if along == "x"
                else {"xanchor": "right", "yanchor": "bottom"}
            )
        )
    return shapes, notes


def _hover(snapshot: Snapshot, candidate: Candidate, axes: list[Axis]) -> str:
    lines = [f"{a.label}: {text(a, candidate.value(a.key))}" for a in axes if not a.key.startswith("epsilon")]
    lines += epsilon_words(candidate.metrics)
    params = ", ".join(f"{k} {text(Axis(k, k), v)}" for k, v in candidate.params.items())
    note = "Pareto-optimal" if candidate.on_front else "dominated"
    return f"<b>{candidate.name}</b> ({note})<br>" + "<br>".join(lines) + f"<br>{params}"


def _drawn(candidate: Candidate, *axes: Axis) -> bool:
    values = [candidate.value(axis.key) for axis in axes]
    return all(
        (is_number(value) and (value > 0 or not axis.log)) or isinstance(value, str)
        for value, axis in zip(values, axes, strict=True)
    )
