"""Plots of the attacks on one model: ROC curves, AUC and TPR of each attack, and the epsilons."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from sweeps.text.figures import FIGURES, compared_words, epsilon_text, extraction_words, permitted_words
from trainables.measure.attacks import colour_of
from trainables.measure.attacks.roc import AttackResult
from trainables.records.files import atomic_write

_BLUE, _YELLOW, _RED, _GREEN = "#4269d0", "#efb118", "#ff725c", "#6cc5b0"
_LAYOUT = {"template": "plotly_white", "height": 460, "margin": {"t": 60, "r": 30}}


def roc_figure(results: list[AttackResult]) -> go.Figure:
    """Return ROC curves on logarithmic axes, which show the low false positive rates that matter."""
    least = 1 / (2 * max(result.non_members for result in results))
    figure = go.Figure()
    for result in results:
        # A logarithm of 0 does not exist: points without a false positive are drawn at the left edge.
        points = [(max(f, least), t) for f, t in zip(result.fpr, result.tpr, strict=True) if t > 0]
        figure.add_scatter(
            x=[f for f, _ in points],
            y=[t for _, t in points],
            name=f"{result.name} (AUC {result.auc:.3f})",
            mode="lines",
            line={"color": colour_of(result.name), "shape": "hv"},
            hovertemplate="FPR %{x:.4f}, TPR %{y:.4f}<extra>" + result.name + "</extra>",
        )
    figure.add_scatter(x=[least, 1], y=[least, 1], name="guessing", mode="lines", line={"color": "#888", "dash": "dot"})
    figure.update_layout(title="ROC of each attack", **_LAYOUT)
    axis = {"type": "log", "exponentformat": "power", "range": [math.log10(least), 0]}
    figure.update_xaxes(title="false positive rate", **axis)
    figure.update_yaxes(title="true positive rate", **axis)
    return figure


def bars_figure(results: list[AttackResult]) -> go.Figure:
    """Return bars of AUC, TPR at 1 % FPR and TPR at 0.1 % FPR of each attack, with 95 % intervals."""
    figure = go.Figure()
    figures = (
        ("auc", "AUC", _BLUE),
        ("tpr_at_1pct_fpr", "TPR at 1 % FPR", _YELLOW),
        ("tpr_at_01pct_fpr", "TPR at 0.1 % FPR", _RED),
    )
    for field, name, colour in figures:
        values = [getattr(result, field) for result in results]
        at = field.replace("tpr_at", "realised")
        realised = [f", at an FPR of {getattr(result, at):.4f}" if at != field else "" for result in results]
        bounds = [getattr(result, f"{field}_ci") for result in results]
        figure.add_bar(
            x=[result.name for result in results],
            y=values,
            name=name,
            marker_color=colour,
            text=[f"{value:.3f}" for value in values] if field == "auc" else None,
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            customdata=realised,
            hovertemplate="%{x}: %{y:.4f}%{customdata}<extra>" + name + "</extra>",
            error_y={
                "type": "data",
                "array": [high - value for value, (_, high) in zip(values, bounds, strict=True)],
                "arrayminus": [value - low for value, (low, _) in zip(values, bounds, strict=True)],
                "color": "#555",
                "thickness": 1,
            },
        )
    line: dict[str, Any] = {"color": "#888", "dash": "dot"}
    names = [result.name for result in results]
    figure.add_scatter(x=names, y=[0.5] * len(names), name="AUC of guessing", mode="lines", line=line)
    figure.update_layout(title="Attacks, with 95 % intervals", barmode="group", **_LAYOUT)
    figure.update_yaxes(range=[0, 1.1])
    return figure


def epsilon_figure(document: dict[str, Any]) -> go.Figure:
    """Return the ε that the audit has shown, the ε that is guaranteed, and the ε of the paper's formula."""
    rows: list[tuple[str, Any, str, Callable[[float], str], str]] = [
        ("paper", document["epsilon_paper"], "none", epsilon_text, _YELLOW),
        ("honest (≤)", document["epsilon"], "none", epsilon_text, _RED),
    ]
    if document["epsilon_audited"] is not None:
        rows.insert(0, ("audited (≥)", document["epsilon_audited"], "none", FIGURES["epsilon_audited"].text, _BLUE))
    if document.get("epsilon_user") is not None:
        rows.append(("of a user (≤)", document["epsilon_user"], "none", epsilon_text, _GREEN))
    finite = [value for _, value, *_ in rows if value is not None and 0 < value < math.inf]
    top, least = max([10.0, *finite]) * 3, min([1.0, *finite]) / 10
    figure = go.Figure()
    for name, value, none, written, colour in rows:
        text = none if value is None else written(value)
        shown = least if value is None else min(max(value, least), top)
        figure.add_scatter(
            x=[shown],
            y=[name],
            text=[f"  {text}  "],
            mode="markers+text",
            textposition="middle left" if shown > math.sqrt(least * top) else "middle right",
            marker={"color": colour, "size": 14, "symbol": "circle-open" if value is None else "circle"},
            showlegend=False,
            hoverinfo="text",
        )
    figure.update_layout(title=f"ε of this run at δ = {document['delta']:g}", **(_LAYOUT | {"height": 300}))
    figure.update_xaxes(
        title="ε", type="log", range=[math.log10(least) - 0.1, math.log10(top) + 0.1], exponentformat="power"
    )
    return figure


def write_attack_page(document: dict[str, Any], results: list[AttackResult], path: Path) -> None:
    """Write all plots to one HTML file. Plotly is in the file, so that it opens without a network."""
    figures = (roc_figure(results), bars_figure(results), epsilon_figure(document))
    parts = [figure.to_html(full_html=False, include_plotlyjs=i == 0) for i, figure in enumerate(figures)]
    title = f"Attacks on {document['run']}"
    lines = [compared_words(document), extraction_words(document), permitted_words(document)]
    words = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    style = "<style>body{font-family:sans-serif;max-width:1100px;margin:1em auto;padding:0 1em}</style>"
    with atomic_write(path) as partial:
        partial.write_text(f"{head}{style}<h1>{title}</h1>{words}{''.join(parts)}</html>", encoding="utf-8")
