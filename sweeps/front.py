"""The Pareto front of a sweep, and its pictures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from edp.spec import EDPSpec
from sweeps.spec import Objective, objective_values
from sweeps.store import TrialRecord

NO_GUARANTEE = 1e4
"""An ε of this size or more is no formal guarantee, and is labelled so wherever it is listed."""

AXES: dict[str, str] = {
    "ser": "SER (semantic error rate, test)",
    "mia_auc": "MIA AUC (shadow attack)",
    "log10_epsilon": "log10 ε (honest)",
    "log10_epsilon_paper": "log10 ε (as the paper reckons)",
}


def dominates(one: list[float], other: list[float]) -> bool:
    """Whether `one` is nowhere worse and somewhere better than `other`; all are minimised."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


def pareto_front(trials: list[TrialRecord], objectives: tuple[Objective, ...]) -> list[TrialRecord]:
    """The complete trials that no other one dominates, by the first objective."""
    points = [(t, objective_values(objectives, t.metrics)) for t in trials if t.state == "complete" and t.metrics]
    front = [(t, p) for t, p in points if not any(dominates(q, p) for _, q in points)]
    return [t for t, _ in sorted(front, key=lambda item: item[1])]


def epsilon_text(epsilon: float) -> str:
    """ε as a person reads it, labelled where it guarantees nothing."""
    if math.isinf(epsilon):
        return "∞ (no formal guarantee)"
    text = f"{epsilon:.3g}" if epsilon < NO_GUARANTEE else f"{epsilon:.2e}"
    return text if epsilon < NO_GUARANTEE else f"{text} (no formal guarantee)"


MARK = "†"
"""Stands for "no formal guarantee" where a table has no room for the words; its caption says so."""


def epsilon_cell(epsilon: float) -> str:
    """ε for a narrow column."""
    if math.isinf(epsilon):
        return f"∞ {MARK}"
    return f"{epsilon:.3g}" if epsilon < NO_GUARANTEE else f"{epsilon:.1e} {MARK}"


def privacy_statement(metrics: dict[str, float], edp: EDPSpec) -> str:
    """What a run guarantees, in words: for tags and lists that have no other column for it."""
    if edp.reproducible_noise is not None:
        return "not private: the noise is reproducible"
    epsilon = metrics["epsilon"]
    if epsilon >= NO_GUARANTEE:
        return f"no formal guarantee (epsilon {epsilon:.3g})"
    unit = "one example" if edp.unit == "example" else "one micro-batch"
    return f"({epsilon:.4g}, {edp.delta:g})-DP for {unit}, {edp.sampling} sampling, trusted aggregator"


def relative_change(value: float, baseline: float) -> float:
    """In percent of the baseline, as the paper's Table 1 gives ΔSER and ΔMIA."""
    return 100 * (value - baseline) / baseline if baseline else math.nan


def params_text(params: dict[str, Any]) -> str:
    """A configuration in one line."""
    shown = {k: v for k, v in params.items() if not (k == "tau" and v == 0)}
    return ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())


def front_figure(
    trials: list[TrialRecord],
    front: list[TrialRecord],
    baseline: dict[str, float] | None,
    objectives: tuple[Objective, ...],
    title: str,
) -> go.Figure:
    """All complete trials over the first two objectives, coloured by the third; the baseline as dashed lines."""
    on_front = {t.number for t in front}
    x, y = (objectives[0], objectives[1]) if len(objectives) > 1 else (objectives[0], objectives[0])
    colour = objectives[2] if len(objectives) > 2 else y
    complete = [t for t in trials if t.state == "complete"]
    values = {t.number: objective_values((x, y, colour), t.metrics) for t in complete}
    shades = [v[2] for v in values.values() if math.isfinite(v[2])] or [0.0]
    figure = go.Figure()
    for name, members, symbol, opacity, size in (
        ("dominated", [t for t in complete if t.number not in on_front], "circle-open", 0.45, 9),
        ("Pareto-optimal", front, "diamond", 1.0, 13),
    ):
        figure.add_trace(
            go.Scatter(
                x=[values[t.number][0] for t in members],
                y=[values[t.number][1] for t in members],
                mode="markers+text",
                text=[f"  {t.number}" for t in members],
                textposition="middle right",
                name=name,
                opacity=opacity,
                marker={
                    "symbol": symbol,
                    "size": size,
                    "color": [values[t.number][2] for t in members],
                    "coloraxis": "coloraxis",
                    "line": {"width": 1.5},
                },
                customdata=[
                    [
                        t.number,
                        params_text(t.params),
                        epsilon_text(t.metrics["epsilon"]),
                        epsilon_text(t.metrics["epsilon_paper"]),
                    ]
                    for t in members
                ],
                hovertemplate=(
                    "<b>trial %{customdata[0]}</b><br>%{customdata[1]}<br>"
                    + AXES[x]
                    + ": %{x:.4f}<br>"
                    + AXES[y]
                    + ": %{y:.4f}<br>"
                    "ε: %{customdata[2]}<br>ε (paper): %{customdata[3]}<extra></extra>"
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
        coloraxis={
            "colorscale": "Viridis",
            "cmin": min(shades),
            "cmax": max(shades),
            "colorbar": {"title": {"text": AXES[colour]}},
        },
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        showlegend=True,
        height=680,
        margin={"t": 70, "r": 40},
    )
    return figure


def write_front_page(figure: go.Figure, path: Path) -> None:
    """A page that needs nothing else: Plotly is inside, so it opens without a network."""
    figure.write_html(path, include_plotlyjs=True, full_html=True)
