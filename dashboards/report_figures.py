"""The report's pictures as SVG: they print as sharp as text, need no script, and carry their numbers as text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
from matplotlib.figure import Figure

from sweeps.results.front import epsilon_varies
from sweeps.state.records import Point

_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
}
_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Curve:
    """An attack's ROC: rates (n,), both rising."""

    name: str
    auc: float
    fpr: Sequence[float]
    tpr: Sequence[float]


def front_svg(
    points: Sequence[Point], front: Sequence[Point], chosen: Point, baseline: dict[str, float], leakage: str = "mia_auc"
) -> str:
    """SER against leakage with 95 % intervals, coloured by log10 ε if that varies; the chosen point ringed, SGD dashed.

    Args:
        leakage: the metric of it.
    """
    on_front = {point.name for point in front}
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.0, 3.7), layout="constrained")
        axes = figure.subplots()
        values = [_log_epsilon(p) for p in points]
        finite = [v for v in values if math.isfinite(v)] or [0.0]
        low, high, coloured = min(finite), max(finite), epsilon_varies(points)
        for members, marker, size, alpha in (
            ([p for p in points if p.name not in on_front], "o", 22, 0.55),
            (list(front), "D", 46, 1.0),
        ):
            if not members:
                continue
            x = [p.metrics["ser"] for p in members]
            y = [p.metrics[leakage] for p in members]
            if marker == "D":
                axes.errorbar(
                    x, y, xerr=_bars(members, "ser"), yerr=_bars(members, leakage), fmt="none", ecolor="#999", lw=0.7
                )
            drawn = axes.scatter(
                x,
                y,
                c=[min(_log_epsilon(p), high) for p in members] if coloured else "#31688e",
                cmap="viridis" if coloured else None,
                vmin=low if coloured else None,
                vmax=high if coloured else None,
                marker=marker,
                s=size,
                alpha=alpha,
                linewidths=0.6,
                edgecolors="#333",
                zorder=3,
            )
            if marker == "D":
                for point in members:
                    place = (point.metrics["ser"], point.metrics[leakage])
                    axes.annotate(point.name, place, xytext=(5, 5), textcoords="offset points", fontsize=8)
        axes.scatter(
            [chosen.metrics["ser"]],
            [chosen.metrics[leakage]],
            s=190,
            facecolors="none",
            edgecolors="#d62728",
            linewidths=1.6,
            zorder=4,
        )
        if coloured:
            figure.colorbar(drawn, ax=axes, label=r"log10 ε (honest)")
        if "ser" in baseline:
            axes.axvline(baseline["ser"], color="#555", lw=0.9, ls="--")
        if leakage in baseline:
            axes.axhline(baseline[leakage], color="#555", lw=0.9, ls="--")
        axes.set_xlabel("SER on the test split (lower is better)")
        axes.set_ylabel(f"{'MIA AUC' if leakage == 'mia_auc' else 'MIA TPR at 1 % FPR'} (lower is better)")
        axes.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
        return _svg(figure)


def roc_svg(curves: Sequence[Curve]) -> str:
    """ROC curves, linear beside logarithmic: what matters about an attack is where false alarms are rare."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.0, 3.3), layout="constrained")
        linear, logarithmic = figure.subplots(1, 2)
        least = 1 / max(2.0, max(len(curve.fpr) for curve in curves))
        for i, curve in enumerate(curves):
            style = {"ls": _DASHES[i % len(_DASHES)], "lw": 1.4, "color": f"C{i}"}
            linear.plot(curve.fpr, curve.tpr, label=f"{curve.name} ({curve.auc:.3f})", **style)
            shown = [(f, t) for f, t in zip(curve.fpr, curve.tpr, strict=True) if f >= least and t > 0]
            logarithmic.plot([f for f, _ in shown], [t for _, t in shown], **style)
        for axes in (linear, logarithmic):
            axes.plot([least, 1], [least, 1], color="#888", lw=0.8, ls=(0, (1, 2)), label="guessing (0.500)")
            axes.set_xlabel("false positive rate")
        linear.set_ylabel("true positive rate")
        linear.legend(fontsize=8, loc="lower right", title="attack (AUC)", title_fontsize=8)
        logarithmic.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        return _svg(figure)


def _log_epsilon(point: Point) -> float:
    epsilon = point.metrics["epsilon"]
    return math.log10(max(epsilon, 1e-12)) if math.isfinite(epsilon) else math.inf


def _bars(points: Sequence[Point], name: str) -> list[list[float]] | None:
    if not all(f"{name}_lower" in p.metrics for p in points):
        return None
    return [
        [max(0.0, p.metrics[name] - p.metrics[f"{name}_lower"]) for p in points],
        [max(0.0, p.metrics[f"{name}_upper"] - p.metrics[name]) for p in points],
    ]


def _svg(figure: Figure) -> str:
    """The picture alone, without what XML has before it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
