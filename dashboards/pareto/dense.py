"""Traces of thousands of points, which `assets/dense.js` draws in place of Plotly, and the labels of their points.

Plotly draws an SVG element for each point, which takes seconds for thousands of them. Its charts by WebGL need
`unsafe-eval`, which the page's content policy forbids.
"""

from __future__ import annotations

from typing import Any

from dash import Dash
from flask import Response, abort, request

from dashboards.pareto.data import Axis, Candidate, text
from dashboards.pareto.source import Source
from dashboards.pareto.style import Figure
from sweeps.text.figures import epsilon_words

MANY = 1_000
"""The largest number of dominated points that Plotly draws itself."""


def dense(trace: Figure) -> Figure:
    """Return the trace without marks or lines of Plotly's own; Plotly still finds its points under the pointer.

    `assets/dense.js` draws the trace's marker or line. Figures have as many digits as a screen can show.
    """
    meta = {
        name: _short(values) if isinstance(values, list) else values for name, values in trace.get("meta", {}).items()
    }
    marker = trace.get("marker", {})
    if isinstance(marker.get("color"), list):
        marker = marker | {"color": _short(marker["color"])}
    return trace | {
        "mode": "none",
        "x": _short(trace["x"]),
        "y": _short(trace["y"]),
        "meta": meta,
        "showlegend": False,
        **({"marker": marker} if marker else {}),
    }


def _short(values: list[Any]) -> list[Any]:
    """Round numbers, also in pairs, to six digits."""
    return [float(f"{v:.6g}") if isinstance(v, float) else _short([*v]) if isinstance(v, tuple) else v for v in values]


def legend(trace: Figure) -> Figure:
    """Return a trace without points that stands for a dense one in the legend, and hides it at a click."""
    marker = trace["marker"]
    first = marker["color"][:1] if isinstance(marker["color"], list) else marker["color"]
    return {name: trace[name] for name in ("type", "name", "opacity", "legendgroup")} | {
        "mode": "markers",
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "marker": marker | {"color": first},
    }


def label(candidate: Candidate, axes: list[Axis]) -> str:
    """Return the text that a point shows under the pointer: the drawn quantities, its ε and its settings."""
    lines = [f"{a.label}: {text(a, candidate.value(a.key))}" for a in axes if not a.key.startswith("epsilon")]
    lines += epsilon_words(candidate.metrics)
    params = ", ".join(f"{k} {text(Axis(k, k), v)}" for k, v in candidate.params.items())
    note = "Pareto-optimal" if candidate.on_front else "dominated"
    return f"<b>{candidate.name}</b> ({note})<br>" + "<br>".join(lines) + f"<br>{params}"


def labels(app: Dash, source: Source) -> None:
    """Serve the label of one point, since those of all points take megabytes."""

    def hover() -> Response:
        found = source.read()[1]
        candidate = found.candidates.get(request.args.get("point", ""))
        keys = request.args.get("axes", "").split(",")
        if candidate is None or not all(key in found.axes for key in keys):
            abort(404)
        words = label(candidate, [found.axes[key] for key in keys])
        return Response(words, content_type="text/plain; charset=utf-8", headers={"Cache-Control": "no-store"})

    app.server.add_url_rule("/hover", "hover", hover)
