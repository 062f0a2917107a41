"""The picture of a front: all kept epochs over two objectives, coloured by a third."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from sweeps.formatting.figures import epsilon_words, params_text
from sweeps.recipes.parts import Objective, objective_values
from sweeps.results.front import epsilon_varies
from sweeps.state.records import Point, TrialRecord

AXES: dict[str, str] = {
    "ser": "SER (semantic error rate, test)",
    "mia_auc": "MIA AUC (shadow attack)",
    "mia_tpr_at_1pct_fpr": "MIA TPR at 1 % FPR (shadow attack)",
    "log10_epsilon": "log10 ε (honest)",
    "log10_epsilon_paper": "log10 ε (as the paper reckons)",
}


def front_figure(
    trials: Sequence[TrialRecord],
    front: Sequence[Point],
    baseline: dict[str, float] | None,
    objectives: tuple[Objective, ...],
    title: str,
) -> go.Figure:
    """All kept epochs over the first two objectives, coloured by the third; the baseline as dashed lines.

    Where there is no third one, the colour is ε if that varies, as between the epochs of a trial, and else one for all.
    """
    on_front = {(p.trial, p.epoch) for p in front}
    x, y = (objectives[0], objectives[1]) if len(objectives) > 1 else (objectives[0], objectives[0])
    points = [p for t in trials if t.state in ("complete", "stopped") for p in t.points]
    coloured = len(objectives) > 2 or epsilon_varies(points)
    colour: Objective = objectives[2] if len(objectives) > 2 else "log10_epsilon"
    values = {(p.trial, p.epoch): objective_values((x, y, colour), p.metrics) for p in points}
    shades = [v[2] for v in values.values() if math.isfinite(v[2])] or [0.0]
    figure = go.Figure()
    for name, members, symbol, opacity, size in (
        ("dominated", [p for p in points if (p.trial, p.epoch) not in on_front], "circle-open", 0.45, 9),
        ("Pareto-optimal", front, "diamond", 1.0, 13),
    ):
        figure.add_trace(
            go.Scatter(
                x=[values[p.trial, p.epoch][0] for p in members],
                y=[values[p.trial, p.epoch][1] for p in members],
                mode="markers",
                name=name,
                opacity=opacity,
                marker={
                    "symbol": symbol,
                    "size": size,
                    "line": {"width": 1.5},
                }
                | (
                    {
                        "color": [values[p.trial, p.epoch][2] for p in members],
                        "colorscale": "Viridis",
                        "cmin": min(shades),
                        "cmax": max(shades),
                        "showscale": name == "Pareto-optimal",
                        "colorbar": {"title": {"text": AXES[colour]}},
                    }
                    if coloured
                    else {"color": "#31688e"}
                ),
                customdata=[
                    [p.trial, p.epoch, params_text(p.params), "<br>".join(epsilon_words(p.metrics))] for p in members
                ],
                hovertemplate=(
                    "<b>trial %{customdata[0]}, epoch %{customdata[1]}</b><br>%{customdata[2]}<br>"
                    + AXES[x]
                    + ": %{x:.4f}<br>"
                    + AXES[y]
                    + ": %{y:.4f}<br>"
                    "%{customdata[3]}<extra></extra>"
                ),
            )
        )
    if baseline:
        for axis, name in (("x", x), ("y", y)):
            value = baseline.get(name)
            if value is None or not math.isfinite(value):
                continue
            add = figure.add_vline if axis == "x" else figure.add_hline
            add(
                value,
                line_dash="dash",
                line_color="#888",
                annotation_text=f"SGD {value:.3g}",
                annotation_position="top" if axis == "x" else "top right",
            )
    figure.update_layout(
        title={"text": title, "x": 0.02},
        xaxis_title=AXES[x],
        yaxis_title=AXES[y],
        template="plotly_white",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        showlegend=True,
        height=680,
        margin={"t": 70, "r": 40},
    )
    return figure


def write_front_page(figure: go.Figure, path: Path) -> None:
    """A page that needs nothing else: Plotly is inside, so it opens without a network."""
    figure.write_html(path, include_plotlyjs=True, full_html=True)
