"""The common style of the charts. Figures are plain dictionaries: Plotly's objects take ten times longer to build."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from plotly.colors import sample_colorscale

from dashboards.pareto.data import is_number
from sweeps.results.front import Candidate
from sweeps.text.figures import Figure
from trainables.records.pareto import difference

Chart = dict[str, Any]

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1f2933", "muted": "#7b8794", "grid": "#e4e7eb", "accent": "#b91c5c"},
    "dark": {"paper": "#1b2129", "ink": "#e4e9ef", "muted": "#8f9bab", "grid": "#343d49", "accent": "#ff7eb6"},
}
SCALES = {
    "light": sample_colorscale("Viridis", [i / 10 * 0.88 for i in range(11)]),
    "dark": sample_colorscale("Viridis", [0.28 + i / 10 * 0.72 for i in range(11)]),
}
"""Viridis by theme, without the end that is too close to the background."""


def base_layout(theme: str, **more: Any) -> Chart:
    """Return the layout that all charts share, in a theme's colours."""
    t = THEMES[theme]
    return {
        "paper_bgcolor": t["paper"],
        "plot_bgcolor": "rgba(0,0,0,0)",  # points by WebGL lie below it
        "font": {"color": t["ink"], "family": "system-ui, sans-serif", "size": 13},
        "margin": {"l": 70, "r": 20, "t": 40, "b": 55},
        "hoverlabel": {"bgcolor": t["paper"], "bordercolor": t["muted"], "font": {"color": t["ink"]}},
        "uirevision": "kept",  # zoom and legend survive a refresh
        "hovermode": "closest",
    } | more


def axis_style(axis: Figure, theme: str, values: list[float], **more: Any) -> Chart:
    """Return the style of an axis whose quantity takes `values`."""
    t = THEMES[theme]
    return {
        "title": {"text": axis.label, "standoff": 10},
        "type": "log" if axis.log else "linear",
        "range": axis_range(axis, values),
        "gridcolor": t["grid"],
        "linecolor": t["muted"],
        "zeroline": False,
        "tickformat": ".3~p" if axis.percent else "",
        "exponentformat": "power",
        "dtick": _log_tick(axis, values) if axis.log else None,
        "automargin": True,
    } | more


def _log_tick(axis: Figure, values: list[float]) -> int | str:
    """Return the step between ticks of a logarithmic axis: powers of ten, or 1, 2 and 5 for shares."""
    return "D2" if axis.percent else decades(values)


def decades(values: list[float], most: int = 8) -> int:
    """Return the step between ticks, in powers of ten, that draws at most `most` of them."""
    logs = [math.log10(v) for v in values if v > 0] or [0.0]
    return max(1, math.ceil((max(logs) - min(logs)) / most))


def axis_range(axis: Figure, values: list[float]) -> list[float]:
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


def varies(found: list[Candidate], axis: Figure) -> bool:
    """Return True if colours tell candidates apart.

    They do not if every z0 was solved for one target ε. They do not either if the largest and the smallest value of a
    measured metric are within noise: at 95 % over all pairs (Bonferroni), as they are the most distant of many.
    """
    shades = {c.key: shade for c in found if (shade := shade_of(c, axis)) is not None}
    members = sorted((c for c in found if c.key in shades), key=lambda c: shades[c.key])
    if not members:
        return False
    least, most = members[0], members[-1]
    gap = shades[most.key] - shades[least.key]
    of_most, of_least = most.interval(axis.key), least.interval(axis.key)
    if of_least is None or of_most is None or gap == 0:
        return gap > (0.01 if axis.log else 0.0)
    normal, pairs = NormalDist(), len(members) * (len(members) - 1) / 2
    wider = normal.inv_cdf(1 - 0.025 / pairs) / normal.inv_cdf(0.975)
    return gap > wider * (gap - difference(most.value(axis.key), of_most, least.value(axis.key), of_least)[0])


def blank(theme: str) -> Chart:
    """Return an empty chart."""
    colour = THEMES[theme]["paper"]
    nothing = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return {"data": [], "layout": nothing | {"paper_bgcolor": colour, "plot_bgcolor": colour}}
