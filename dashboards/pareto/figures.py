"""The page's charts, as the plain dictionaries that Plotly reads (building them as objects takes ten times longer)."""

from __future__ import annotations

import math
from typing import Any

from plotly.colors import sample_colorscale

from dashboards.pareto.data import Axis, Candidate, Limits, Snapshot, is_number, text, within
from sweeps.front import NO_GUARANTEE

Figure = dict[str, Any]
EPSILON = Axis("epsilon", "ε", log=True)

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1f2933", "muted": "#7b8794", "grid": "#e4e7eb", "accent": "#b91c5c"},
    "dark": {"paper": "#1b2129", "ink": "#e4e9ef", "muted": "#8f9bab", "grid": "#343d49", "accent": "#ff7eb6"},
}
# Without the end that is too close to the background.
SCALES = {
    "light": sample_colorscale("Viridis", [i / 10 * 0.88 for i in range(11)]),
    "dark": sample_colorscale("Viridis", [0.28 + i / 10 * 0.72 for i in range(11)]),
}
_BINS = 8


def _layout(theme: str, **more: Any) -> Figure:
    t = THEMES[theme]
    return {
        "paper_bgcolor": t["paper"],
        "plot_bgcolor": t["paper"],
        "font": {"color": t["ink"], "family": "system-ui, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 40, "b": 55},
        "hoverlabel": {"bgcolor": t["paper"], "bordercolor": t["muted"], "font": {"color": t["ink"]}},
        "uirevision": "kept",  # zoom and legend survive a refresh
        "hovermode": "closest",
    } | more


def _axis(axis: Axis, theme: str, values: list[float], **more: Any) -> Figure:
    t = THEMES[theme]
    return {
        "title": {"text": axis.label, "standoff": 10},
        "type": "log" if axis.log else "linear",
        "range": _range(axis, values),
        "gridcolor": t["grid"],
        "linecolor": t["muted"],
        "zeroline": False,
        "tickformat": ".0%" if axis.percent else "",
        "exponentformat": "power",
        "dtick": _decades(values) if axis.log else None,
        "automargin": True,
    } | more


def _decades(values: list[float]) -> int:
    """A tick at so many powers of ten that no more than eight are drawn."""
    logs = [math.log10(v) for v in values if v > 0] or [0.0]
    return max(1, math.ceil((max(logs) - min(logs)) / 8))


def _range(axis: Axis, values: list[float]) -> list[float]:
    """The values with some room, so that nothing is cut at an edge; in log10 where the axis is logarithmic."""
    found = [math.log10(v) if axis.log else v for v in values if is_number(v) and (v > 0 or not axis.log)] or [0.0, 1.0]
    low, high = min(found), max(found)
    room = 0.07 * (high - low) or 0.1 * abs(high) or 0.5
    return [low - room, high + room]


def _shade(candidate: Candidate, axis: Axis) -> float | None:
    value = candidate.value(axis.key)
    if not is_number(value) or (axis.log and value <= 0):
        return None
    return math.log10(value) if axis.log else float(value)


def _hover(snapshot: Snapshot, candidate: Candidate, axes: list[Axis]) -> str:
    lines = [f"{a.label}: {text(a, candidate.value(a.key))}" for a in axes]
    params = ", ".join(f"{k} {text(Axis(k, k), v)}" for k, v in candidate.params.items())
    note = "Pareto-optimal" if candidate.on_front else "dominated"
    return f"<b>{candidate.name}</b> ({note})<br>" + "<br>".join(lines) + f"<br>{params}"


def _drawn(candidate: Candidate, *axes: Axis) -> bool:
    values = [candidate.value(axis.key) for axis in axes]
    return all(
        (is_number(value) and (value > 0 or not axis.log)) or isinstance(value, str)
        for value, axis in zip(values, axes, strict=True)
    )


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


def scatter(
    snapshot: Snapshot, limits: Limits, selected: str | None, x: Axis, y: Axis, colour: Axis, theme: str
) -> Figure:
    """All candidates over two quantities, coloured by a third; those of the front, within limits, in full."""
    t = THEMES[theme]
    drawn = [c for c in snapshot.candidates.values() if _drawn(c, x, y)]
    shades = {c.key: _shade(c, colour) for c in drawn}
    known = [s for s in shades.values() if s is not None] or [0.0]
    scale = {
        "colorscale": [[i / 10, tint] for i, tint in enumerate(SCALES[theme])],
        "cmin": min(known),
        "cmax": max(known) if max(known) > min(known) else min(known) + 1,
    }
    inside = {c.key for c in drawn if within(c, limits)}
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
    # The key to the colours is a trace of its own, so that it stays when limits leave no point.
    traces.append(
        {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "showlegend": False, "hoverinfo": "skip"}
        | {"marker": scale | {"color": [max(known)], "showscale": True, "colorbar": _key(colour)}}
    )
    chosen = snapshot.candidates.get(selected or "")
    if chosen is not None and _drawn(chosen, x, y):
        # The other kept epochs of its trial: where training longer leads.
        path = sorted((c for c in drawn if c.trial == chosen.trial), key=lambda c: c.point.epoch)
        traces.append(
            {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False}
            | {"x": [c.value(x.key) for c in path], "y": [c.value(y.key) for c in path]}
            | {"line": {"color": t["accent"], "width": 1.5, "dash": "dot"}}
        )
        traces.append(
            {"type": "scatter", "mode": "markers", "name": f"selected: {chosen.name}", "hoverinfo": "skip"}
            | {"x": [chosen.value(x.key)], "y": [chosen.value(y.key)]}
            | {f"error_{along}": _error_bar(chosen, axis, t["accent"]) for along, axis in (("x", x), ("y", y))}
            | {"marker": {"symbol": "circle-open", "size": 26, "color": t["accent"], "line": {"width": 3}}}
        )
    shapes, notes = _reference_lines(snapshot, x, y, theme)
    xs, ys = (
        [float(c.value(a.key)) for c in drawn if is_number(c.value(a.key))]
        + [v for v in [snapshot.baseline.get(a.key)] if is_number(v)]
        + [end for c in drawn if c.on_front for end in c.interval(a.key) or ()]
        for a in (x, y)
    )
    layout = _layout(
        theme,
        xaxis=_axis(x, theme, xs) if not _words(drawn, x) else {"type": "category", "title": {"text": x.label}},
        yaxis=_axis(y, theme, ys) if not _words(drawn, y) else {"type": "category", "title": {"text": y.label}},
        shapes=shapes,
        annotations=notes,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "itemsizing": "constant"},
    )
    return {"data": traces, "layout": layout}


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


def parallel(
    snapshot: Snapshot, limits: Limits, selected: str | None, axes: list[Axis], colour: Axis, theme: str
) -> Figure:
    """Parallel coordinates: a line a candidate across all that was searched and measured.

    Drawn as lines, rather than with Plotly's own chart of that name: that one needs WebGL, cannot be clicked, and
    tells the front from the rest by colour alone.
    """
    t = THEMES[theme]
    places = {axis.key: _places(axis, snapshot) for axis in axes}
    shown = [c for c in snapshot.candidates.values() if within(c, limits)]
    shades = {c.key: _shade(c, colour) for c in shown}
    known = [s for s in shades.values() if s is not None] or [0.0]
    low, high = min(known), max(known)

    def bin_of(candidate: Candidate) -> int:
        shade = shades[candidate.key]
        if shade is None or high == low:
            return _BINS - 1
        return min(_BINS - 1, int(_BINS * (shade - low) / (high - low)))

    traces = [
        _lines([c for c in shown if not c.on_front], axes, places, "dominated")
        | {"line": {"color": t["muted"], "width": 1, "dash": "dot"}, "opacity": 0.45}
    ]
    for i in range(_BINS):
        members = [c for c in shown if c.on_front and bin_of(c) == i]
        tint = sample_colorscale(SCALES[theme], [(i + 0.5) / _BINS])[0]
        traces.append(_lines(members, axes, places, "Pareto-optimal") | {"line": {"color": tint, "width": 2.5}})
    chosen = snapshot.candidates.get(selected or "")
    if chosen is not None:
        traces.append(
            _lines([chosen], axes, places, f"selected: {chosen.name}")
            | {"mode": "lines+markers", "line": {"color": t["accent"], "width": 4}}
            | {"marker": {"size": 9, "symbol": "circle", "color": t["accent"]}}
        )
    shapes: list[Figure] = []
    notes: list[Figure] = []
    for i, axis in enumerate(axes):
        shapes.append(_vertical(i, 0, 1, t["muted"], 1.5))
        place = places[axis.key]
        if axis.key in limits and (top := place(limits[axis.key])) is not None:
            shapes.append(_vertical(i, 0, min(max(top, 0), 1), t["accent"], 6) | {"opacity": 0.45})
        notes.append(_note(i, 1.13, f"<b>{axis.short}</b>", t["ink"]))
        notes += [_note(i, at, label, t["ink"], background=t["paper"]) for at, label in place.marks]
    layout = _layout(
        theme,
        xaxis={"visible": False, "range": [-0.5, len(axes) - 0.5], "fixedrange": True},
        yaxis={"visible": False, "range": [-0.12, 1.22], "fixedrange": True},
        margin={"l": 5, "r": 5, "t": 5, "b": 5},
        shapes=shapes,
        annotations=notes,
        showlegend=False,
    )
    return {"data": traces, "layout": layout}


class _places:
    """Where on its axis, 0 to 1, a value stands; `marks` are the labels beside the axis."""

    def __init__(self, axis: Axis, snapshot: Snapshot) -> None:
        found = [c.value(axis.key) for c in snapshot.candidates.values()]
        self._words = sorted({str(v) for v in found if isinstance(v, str)})
        self._log = axis.log
        numbers = [float(v) for v in found if is_number(v)] or [0.0]
        self._low, self._high = (
            (math.log10(v) for v in (min(numbers), max(numbers)))
            if axis.log
            else (
                min(numbers),
                max(numbers),
            )
        )
        if self._words:
            self.marks = [(self(word) or 0.0, word) for word in self._words]
        else:
            self.marks = [(-0.06, text(axis, min(numbers))), (1.06, text(axis, max(numbers)))]

    def __call__(self, value: Any) -> float | None:
        if isinstance(value, str):
            n = len(self._words)
            return 0.5 if n < 2 else self._words.index(value) / (n - 1) if value in self._words else None
        if not isinstance(value, int | float) or math.isnan(value):
            return None
        if math.isinf(value):
            return 1.04
        at = math.log10(max(value, 1e-12)) if self._log else value
        return (at - self._low) / (self._high - self._low) if self._high > self._low else 0.5


def _lines(members: list[Candidate], axes: list[Axis], places: dict[str, _places], name: str) -> Figure:
    """One trace for many lines, with a gap after each."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    keys: list[str | None] = []
    words: list[str | None] = []
    for c in members:
        for i, axis in enumerate(axes):
            value = c.value(axis.key)
            xs.append(i)
            ys.append(places[axis.key](value))
            keys.append(c.key)
            words.append(f"<b>{c.name}</b><br>{axis.label}: {text(axis, value)}")
        xs.append(None)
        ys.append(None)
        keys.append(None)
        words.append(None)
    return {"type": "scatter", "mode": "lines", "name": name, "x": xs, "y": ys, "customdata": keys} | {
        "text": words,
        "hovertemplate": "%{text}<extra>" + name + "</extra>",
    }


def _vertical(x: float, y0: float, y1: float, colour: str, width: float) -> Figure:
    return {"type": "line", "x0": x, "x1": x, "y0": y0, "y1": y1, "layer": "below"} | {
        "line": {"color": colour, "width": width}
    }


def _note(x: float, y: float, words: str, colour: str, background: str | None = None) -> Figure:
    style: Figure = {"font": {"size": 12, "color": colour}, "showarrow": False, "xanchor": "center"}
    if background:
        style |= {"bgcolor": background, "opacity": 0.9}
    return {"x": x, "y": y, "text": words, "yanchor": "middle"} | style


def epsilons(candidate: Candidate, theme: str) -> Figure:
    """What is known of a candidate's ε, as ranges on a logarithmic axis: at least, at most, and the paper's claim."""
    t = THEMES[theme]
    rows = [
        ("paper: at most", candidate.metrics.get("epsilon_paper", math.nan), "most"),
        ("honest: at most", candidate.metrics.get("epsilon", math.nan), "most"),
        ("audited: at least", candidate.metrics.get("epsilon_audited", math.nan), "least"),
    ]
    rows = [row for row in rows if not math.isnan(row[1])]
    finite = [max(v, 1e-3) for _, v, _ in rows if math.isfinite(v)] or [1.0]
    low = min(math.floor(math.log10(min(finite))) - 1, -1)
    high = max(math.ceil(math.log10(max(finite))) + 1, 5)
    if any(math.isinf(v) for _, v, _ in rows):
        high += 1
    traces: list[Figure] = []
    for name, value, side in rows:
        end = math.log10(max(value, 10**low)) if math.isfinite(value) else high
        span = (low, end) if side == "most" else (end, high)
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [10.0 ** span[0], 10.0 ** span[1]], "y": [name, name]}
            | {"line": {"width": 11, "color": t["muted"] if name.startswith("paper") else t["accent"]}}
            | {"opacity": 0.35 if name.startswith("paper") else 0.6, "hoverinfo": "skip"}
        )
        traces.append(
            {"type": "scatter", "mode": "markers+text", "x": [10.0**end], "y": [name]}
            | {"marker": {"symbol": "line-ns-open", "size": 18, "color": t["ink"], "line": {"width": 3}}}
            | {"text": [f"{'≤' if side == 'most' else '≥'} {text(EPSILON, value)}"]}
            | {"textposition": "top left" if end > (low + high) / 2 else "top right"}
            | {"hoverinfo": "skip", "cliponaxis": False, "textfont": {"color": t["ink"]}}
        )
    powers = range(low, high + 1, max(1, math.ceil((high - low) / 6)))
    layout = _layout(
        theme,
        xaxis={
            "type": "log",
            "range": [low, high],
            "tickvals": [10.0**i for i in powers],
            "ticktext": [f"10<sup>{i}</sup>" for i in powers],
            "tickangle": 0,
            "gridcolor": t["grid"],
            "zeroline": False,
            "fixedrange": True,
            "title": {"text": "ε (smaller protects more)", "standoff": 8},
        },
        yaxis={"type": "category", "fixedrange": True, "automargin": True, "range": [-0.6, len(rows) + 0.15]}
        | {"ticklabelstandoff": 6},
        margin={"l": 10, "r": 12, "t": 4, "b": 45},
        showlegend=False,
        shapes=[
            {"type": "rect", "xref": "x", "yref": "paper", "x0": NO_GUARANTEE, "x1": 10.0**high, "y0": 0, "y1": 1}
            | {"fillcolor": t["muted"], "opacity": 0.15, "line": {"width": 0}, "layer": "below"}
        ],
    )
    return {"data": traces, "layout": layout}


CURVES = {
    "valid_ser": ("SER on validation", False),
    "train_loss": ("Training loss", False),
    "valid_mia_auc": ("MIA AUC on validation", False),
    "epsilon": ("ε so far (honest)", True),
}


def curves(curve: tuple[dict[str, float], ...], epoch: int, theme: str) -> Figure:
    """What a trial reported after each epoch, one small chart below the other; the candidate's own epoch is marked."""
    history = {key: [(int(e.get("epoch", i + 1)), e[key]) for i, e in enumerate(curve) if key in e] for key in CURVES}
    t = THEMES[theme]
    names = [key for key in CURVES if any(math.isfinite(v) for _, v in history.get(key, []))]
    layout = _layout(theme, showlegend=False, margin={"l": 10, "r": 12, "t": 22, "b": 40}, annotations=[])
    traces = []
    for i, key in enumerate(names):
        label, log = CURVES[key]
        n = "" if i == 0 else str(i + 1)
        top, bottom = (
            1 - i / len(names),
            1 - (i + 1) / len(names) + (0.14 / len(names) * 2 if i < len(names) - 1 else 0),
        )
        points = [(e, v) for e, v in history[key] if math.isfinite(v)]
        traces.append(
            {"type": "scatter", "mode": "lines+markers", "x": [e for e, _ in points], "y": [v for _, v in points]}
            | {"xaxis": "x", "yaxis": f"y{n}", "line": {"color": t["accent"], "width": 2}, "marker": {"size": 6}}
            | {"hovertemplate": "epoch %{x}: %{y:.4g}<extra></extra>", "name": label}
        )
        layout[f"yaxis{n}"] = {
            "domain": [bottom, top],
            "type": "log" if log else "linear",
            "gridcolor": t["grid"],
            "zeroline": False,
            "nticks": 4,
            "automargin": True,
            "exponentformat": "power",
            "tickformat": ".0%" if key.endswith("ser") else "",
            "fixedrange": True,
        }
        layout["annotations"].append(
            {"text": label, "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left"}
            | {"yanchor": "bottom", "showarrow": False, "font": {"size": 12, "color": t["ink"]}, "bgcolor": t["paper"]}
        )
    last = "y" if len(names) < 2 else f"y{len(names)}"
    layout["shapes"] = [
        {"type": "line", "x0": epoch, "x1": epoch, "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
        | {"line": {"color": t["muted"], "dash": "dot", "width": 1.5}}
    ]
    steps = {e for key in names for e, _ in history[key]}
    layout["xaxis"] = {"title": {"text": "epoch"}, "anchor": last, "gridcolor": t["grid"], "zeroline": False} | {
        "dtick": max(1, len(steps) // 8),
        "fixedrange": True,
    }
    return {"data": traces, "layout": layout}
