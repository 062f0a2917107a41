"""The Pareto front of a sweep, and its pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from edp.spec import EDPSpec
from sweeps.guarantee import NO_GUARANTEE
from sweeps.records import Point, TrialRecord
from sweeps.spec import Objective, objective_values
from trainables.pareto import non_dominated

AXES: dict[str, str] = {
    "ser": "SER (semantic error rate, test)",
    "mia_auc": "MIA AUC (shadow attack)",
    "mia_tpr_at_1pct_fpr": "MIA TPR at 1 % FPR (shadow attack)",
    "log10_epsilon": "log10 ε (honest)",
    "log10_epsilon_paper": "log10 ε (as the paper reckons)",
}


def pareto_front(trials: Sequence[TrialRecord], objectives: tuple[Objective, ...]) -> list[Point]:
    """The kept epochs, of all trials that ended well or were stopped early, that no other one dominates.

    Returns:
        By the first objective, then the others, then trial and epoch.
    """
    points = [point for trial in trials if trial.state in ("complete", "stopped") for point in trial.points]
    values = [objective_values(objectives, point.metrics) for point in points]
    front = [(values[i], points[i]) for i in non_dominated(values)]
    return [point for _, point in sorted(front, key=lambda item: (item[0], item[1].trial, item[1].epoch))]


def epsilon_varies(points: Sequence[Point]) -> bool:
    """Whether ε tells some of these apart: by more than what z0 is solved for to within of a fixed target."""
    found = [objective_values(("log10_epsilon",), point.metrics)[0] for point in points]
    return bool(found) and max(found) - min(found) > 0.01


def number(value: float) -> str:
    """Three digits, and all of them before the point below 10,000: 1002, not 1e+03."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞"
    return f"{value:.0f}" if 99.95 <= abs(value) < NO_GUARANTEE else f"{value:.3g}"


def epsilon_text(epsilon: float) -> str:
    """ε as a person reads it, labelled where it guarantees nothing."""
    if math.isinf(epsilon):
        return "∞ (no formal guarantee)"
    return f"{epsilon:.2e} (no formal guarantee)" if epsilon >= NO_GUARANTEE else number(epsilon)


MARK = "†"
"""Stands for "no formal guarantee" where a table has no room for the words; its caption says so."""


def epsilon_cell(epsilon: float) -> str:
    """ε for a narrow column."""
    if math.isinf(epsilon):
        return f"∞ {MARK}"
    return f"{epsilon:.1e} {MARK}" if epsilon >= NO_GUARANTEE else number(epsilon)


def audited_text(metrics: Mapping[str, Any]) -> str:
    """What an audit has shown, a lower bound of ε; nothing where there was none."""
    return f"≥ {metrics['epsilon_audited']:.3g}" if "epsilon_audited" in metrics else ""


def epsilon_words(metrics: Mapping[str, Any]) -> list[str]:
    """The three epsilons of a model: what is guaranteed, what the paper would claim, what an attacker has shown."""
    honest, paper = (metrics.get(name, math.nan) for name in ("epsilon", "epsilon_paper"))
    audited = audited_text(metrics)
    return [
        f"ε honest {epsilon_text(honest)}",
        f"ε paper {epsilon_text(paper)}",
        f"ε audited {audited}" if audited else "ε not audited",
    ]


def privacy_statement(metrics: dict[str, float], edp: EDPSpec) -> str:
    """What a run guarantees, in words: for tags and lists that have no other column for it."""
    if edp.reproducible_noise is not None:
        return "not private: the noise is reproducible"
    epsilon = metrics["epsilon"]
    if epsilon >= NO_GUARANTEE:
        return f"no formal guarantee (epsilon {epsilon:.3g})"
    unit = "one example" if edp.unit == "example" else "one micro-batch"
    digits = 3 - math.floor(math.log10(epsilon)) if epsilon > 0 else 0
    up = math.ceil(epsilon * 10.0**digits) / 10.0**digits  # four digits, rounded to the safe side
    return f"({up:g}, {edp.delta:g})-DP for {unit}, {edp.sampling} sampling, trusted aggregator"


def relative_change(value: float, baseline: float) -> float:
    """In percent of the baseline, as the paper's Table 1 gives ΔSER and ΔMIA."""
    return 100 * (value - baseline) / baseline if baseline else math.nan


def params_text(params: dict[str, Any]) -> str:
    """A configuration in one line."""
    shown = {k: v for k, v in params.items() if not (k == "tau" and v == 0)}
    return ", ".join(f"{k} {number(v)}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())


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
