"""Pictures of a front and of ROC curves as SVG, which prints sharply, needs no script and keeps numbers as text."""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from sweeps.config.parts import Objective, metric_of
from sweeps.results.front import epsilon_varies, mechanisms
from sweeps.store.records import Point
from sweeps.text.figures import FIGURES, epsilon_text
from trainables.measure.attacks import colour_of
from trainables.measure.attacks.roc import AttackResult
from trainables.records.pareto import SelectionFigures, objective_value

STYLE: Any = {
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
_ONE_COLOUR, _CHOSEN, _SGD = "#31688e", "#d62728", "#555"
_SIDES: tuple[tuple[float, float, Any], ...] = ((7, 5, "left"), (-7, 5, "right"), (7, -7, "left"), (-7, -7, "right"))
"""Candidate positions of a label: offset in points, and alignment."""


def front_svg(
    points: Sequence[Point],
    front: Sequence[Point],
    objectives: Sequence[Objective],
    baseline: dict[str, float] | None,
    chosen: Point | None = None,
    noisy: Collection[str] = (),
    png: Path | None = None,
) -> str:
    """Draw all kept epochs over two objectives: the front with names and 95 % intervals, and SGD as dashed lines.

    If the front has several clipping modes, one label of each mode names it. A label without room is left out.

    Args:
        objectives: the two axes and the colour. With two objectives the colour shows ε. All points have one colour if
            it does not vary.
        chosen: the configuration to draw a ring around.
        noisy: names of the front's points to draw hollow (`sweeps.results.front.hollow`).
        png: a file to which the same figure is written as pixels, for pages that show no SVG.
    """
    x, y = (*objectives, objectives[0])[:2]
    colour: Objective = objectives[2] if len(objectives) > 2 else "log10_epsilon"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.7), layout="constrained")
        axes = figure.subplots()
        shades = _shades(points, colour)
        names = {point.name for point in front}
        _scatter(axes, [p for p in points if p.name not in names], x, y, shades, marker="o", s=22, alpha=0.55)
        for point in front:
            place = _place(point, x, y)
            bars = _interval(point, x), _interval(point, y)
            axes.errorbar(*place, xerr=bars[0], yerr=bars[1], fmt="none", ecolor="#999", lw=0.7)
        drawn = _scatter(axes, [p for p in front if p.name not in noisy], x, y, shades, marker="D", s=46)
        _scatter(axes, [p for p in front if p.name in noisy], x, y, {}, marker="D", s=46, facecolors="none")
        if chosen is not None:
            _scatter(axes, [chosen], x, y, {}, marker="o", s=190, facecolors="none", edgecolors=_CHOSEN, linewidths=1.6)
        if shades:
            figure.colorbar(drawn, ax=axes, label=_label_of(colour))
        elif colour == "log10_epsilon" and points:
            axes.set_title(f"all at ε = {epsilon_text(points[0].metrics['epsilon'])}", loc="right", fontsize=9)
        _draw_baseline(axes, *(_drawn(one, SelectionFigures(baseline or {})) for one in (x, y)))
        axes.set_xlabel(f"{_label_of(x)} (lower is better)")
        axes.set_ylabel(f"{_label_of(y)} (lower is better)")
        for axis, name in ((axes.xaxis, x), (axes.yaxis, y)):
            if FIGURES[metric_of(name)].percent:
                axis.set_major_formatter(mpl.ticker.PercentFormatter(1))
        _label(figure, axes, front, x, y)
        if png is not None:
            figure.savefig(png, format="png", dpi=110, metadata={"Software": None})
        return svg(figure)


def roc_svg(curves: Sequence[AttackResult]) -> str:
    """Draw ROC curves on linear axes, and on logarithmic axes, which show the region of rare false positives."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.3), layout="constrained")
        linear, rare = figure.subplots(1, 2)
        least = 1 / (2 * max(curve.non_members for curve in curves))
        for i, curve in enumerate(curves):
            style = {"ls": _DASHES[i % len(_DASHES)], "lw": 1.4, "color": colour_of(curve.name)}
            linear.plot(curve.fpr, curve.tpr, label=f"{curve.name} ({curve.auc:.3f})", **style)
            # 0 has no logarithm: members found before the first false positive are drawn at the left edge.
            shown = [(max(f, least), t) for f, t in zip(curve.fpr, curve.tpr, strict=True) if t > 0]
            rare.plot(*zip(*shown, strict=True), drawstyle="steps-post", **style)
        for axes in (linear, rare):
            axes.plot([least, 1], [least, 1], color="#888", lw=0.8, ls=(0, (1, 2)), label="guessing (0.500)")
            axes.set_xlabel("false positive rate")
        linear.set_ylabel("true positive rate")
        linear.legend(fontsize=8, loc="lower right", title="attack (AUC)", title_fontsize=8)
        rare.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        return svg(figure)


def _label_of(objective: Objective) -> str:
    """Return the label of an axis, with the split that an estimate is of."""
    figure = FIGURES[metric_of(objective)]
    return f"{figure.name}, validation" if figure.key == objective else f"log10 {figure.label}"


def svg(figure: Figure) -> str:
    """Return the SVG element of a figure, without the XML prologue."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _shades(points: Sequence[Point], colour: Objective) -> dict[str, float]:
    """Map a point's name to the value that sets its colour, an infinite one as the largest; {} if all are alike."""
    if colour.startswith("log10_epsilon") and not epsilon_varies(points):
        return {}
    values = {point.name: _drawn(colour, point.selection_figures) for point in points}
    finite = [value for value in values.values() if math.isfinite(value)]
    return {name: min(value, max(finite)) for name, value in values.items()} if finite else {}


def _scatter(
    axes: Axes, points: Sequence[Point], x: Objective, y: Objective, shades: dict[str, float], **looks: Any
) -> Any:
    if shades:
        looks |= {"c": [shades[p.name] for p in points], "cmap": "viridis"}
        looks |= {"vmin": min(shades.values()), "vmax": max(shades.values())}
    elif "facecolors" not in looks:
        looks |= {"c": _ONE_COLOUR}
    places = np.array([_place(p, x, y) for p in points]).reshape(-1, 2)
    how: Any = {"linewidths": 0.6, "edgecolors": "#333", "zorder": 3} | looks
    return axes.scatter(places[:, 0], places[:, 1], **how)


def _draw_baseline(axes: Axes, x: float, y: float) -> None:
    """Draw SGD's finite values as dashed lines."""
    looks: Any = {"color": _SGD, "fontsize": 8, "va": "bottom"}
    if math.isfinite(x):
        axes.axvline(x, color=_SGD, lw=0.9, ls="--")
        axes.annotate("SGD", (x, 1), xycoords=("data", "axes fraction"), ha="center", **looks)
    if math.isfinite(y):
        axes.axhline(y, color=_SGD, lw=0.9, ls="--")
        axes.annotate("SGD", (1, y), xycoords=("axes fraction", "data"), ha="right", **looks)


def _label(figure: Figure, axes: Axes, front: Sequence[Point], x: Objective, y: Objective) -> None:
    """Label the front's points, each on the first side where the label is within the axes and covers no other.

    A point without such a side has no label. Labels that name a clipping mode are placed first.
    """
    figure.draw_without_rendering()  # texts have no size before
    clipped = mechanisms(front)
    taken: list[Bbox] = []
    for point in sorted(front, key=lambda point: point.name not in clipped):
        words = f"{point.name}: {clipped[point.name]}" if point.name in clipped else point.name
        for dx, dy, end in _SIDES:
            looks: Any = {"textcoords": "offset points", "ha": end, "va": "center", "fontsize": 8}
            text = axes.annotate(words, _place(point, x, y), xytext=(dx, dy), **looks)
            box = text.get_window_extent()
            if axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and not any(box.overlaps(one) for one in taken):
                taken.append(box)
                break
            text.remove()


def _place(point: Point, x: Objective, y: Objective) -> tuple[float, float]:
    return _drawn(x, point.selection_figures), _drawn(y, point.selection_figures)


def _drawn(objective: Objective, figures: SelectionFigures) -> float:
    """Return the measured value, also where an attack does worse than guessing, which counts as guessing."""
    return figures.get(objective) if metric_of(objective) == objective else objective_value(objective, figures)


def _interval(point: Point, objective: Objective) -> list[list[float]] | None:
    """Return the lengths of the 95 % interval below and above a point, shape (2, 1); None without an interval."""
    if (ends := point.selection_figures.interval(objective)) is None:
        return None
    value = point.selection_figures[objective]
    return [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]
