"""The chart of one candidate, and the table that compares it with others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dash import html

from dashboards.pareto.data import PageData
from dashboards.pareto.layout import figures_row, figures_table
from dashboards.pareto.style import THEMES, Chart, base_layout
from sweeps.results.front import Candidate
from sweeps.text.figures import FIGURES, NO_GUARANTEE, Figure
from trainables.records.pareto import difference


def epsilons(candidate: Candidate, theme: str) -> Chart:
    """Draw a candidate's bounds on ε as ranges on a logarithmic axis: read, honest, and by the paper's formula."""
    t = THEMES[theme]
    names = {"epsilon_paper": "paper", "epsilon_user": "of a user", "epsilon": "honest", "epsilon_read": "read"}
    rows = [
        (f"{name}: at {'most' if FIGURES[key].bound == 'upper' else 'least'}", candidate.metrics[key], FIGURES[key])
        for key, name in names.items()
        if key in candidate.metrics
    ]
    finite = [max(v, 1e-3) for _, v, _ in rows if math.isfinite(v)] or [1.0]
    low = min(math.floor(math.log10(min(finite))) - 1, -1)
    high = max(math.ceil(math.log10(max(finite))) + 1, 5)
    if any(math.isinf(v) for _, v, _ in rows):
        high += 1
    traces: list[Chart] = []
    for name, value, figure in rows:
        end = math.log10(max(value, 10**low)) if math.isfinite(value) else high
        span = (low, end) if figure.bound == "upper" else (end, high)
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [10.0 ** span[0], 10.0 ** span[1]], "y": [name, name]}
            | {"line": {"width": 11, "color": t["muted"] if name.startswith("paper") else t["accent"]}}
            | {"opacity": 0.35 if name.startswith("paper") else 0.6, "hoverinfo": "skip"}
        )
        traces.append(
            {"type": "scatter", "mode": "markers+text", "x": [10.0**end], "y": [name]}
            | {"marker": {"symbol": "line-ns-open", "size": 18, "color": t["ink"], "line": {"width": 3}}}
            | {"text": [f"{'≤' if figure.bound == 'upper' else '≥'} {figure.text(value)}"]}
            | {"textposition": "top left" if end > (low + high) / 2 else "top right"}
            | {"hoverinfo": "skip", "cliponaxis": False, "textfont": {"color": t["ink"]}}
        )
    powers = range(low, high + 1, max(1, math.ceil((high - low) / 6)))
    layout = base_layout(
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


def side_by_side(snapshot: PageData, one: Candidate, others: Sequence[Candidate]) -> html.Table:
    """Return a table of candidates: metrics, with their differences from `one`, and the settings that differ.

    A difference of two measured figures is a 95 % interval. It has a column of its own if there is one other candidate,
    and stands below each figure otherwise.
    """
    every, alone = (one, *others), len(others) == 1
    rows = []
    for axis in snapshot.axes.values():
        if any(axis.key in candidate.metrics for candidate in every):
            apart = [_apart(axis, one, other) for other in others]
            cells = [
                _cell(axis, one),
                *(_cell(axis, o, "" if alone else a) for o, a in zip(others, apart, strict=True)),
            ]
            rows.append(figures_row(axis.head, *cells, *apart[:alone]))
    settings = [Figure("epoch", "epochs")]
    names = dict.fromkeys(name for candidate in every for name in candidate.params)
    settings += [Figure(n, n) for n in names if any(c.params.get(n) != one.params.get(n) for c in others)]
    rows += [figures_row(axis.label, *(_cell(axis, c) for c in every), *([""] * alone)) for axis in settings]
    heads = ("", *(candidate.name for candidate in every), *(["difference (95%)"] * alone))
    return figures_table(heads, rows, "figures two")


def _cell(axis: Figure, candidate: Candidate, apart: str = "") -> Any:
    figure = axis.text(candidate.metrics.get(axis.key, candidate.value(axis.key)))
    return [figure, html.Div(apart, className="apart")] if apart else figure


def _apart(axis: Figure, one: Candidate, other: Candidate) -> str:
    """Return the difference of two candidates; as an interval if both metrics have one."""
    a, b = one.value(axis.key), other.value(axis.key)
    if (of_a := one.interval(axis.key)) and (of_b := other.interval(axis.key)):
        low, high = difference(a, of_a, b, of_b)
        words = f"{100 * low:+.1f} to {100 * high:+.1f} points" if axis.percent else f"{low:+.3f} to {high:+.3f}"
        return words + (", noise" if low <= 0 <= high else "")
    return axis.change(a, b)
