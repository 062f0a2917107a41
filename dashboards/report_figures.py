"""The report's ROC curves as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from sweeps.results.front_figure import STYLE, svg
from trainables.attacks import colour_of

_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Curve:
    """An attack's ROC: rates (n,), both rising; a false alarm is one of `non_members`."""

    name: str
    auc: float
    non_members: int
    fpr: Sequence[float]
    tpr: Sequence[float]


def logarithmic(curves: Sequence[Curve]) -> tuple[float, list[list[tuple[float, float]]]]:
    """The left edge of logarithmic axes, and each curve's points there: what is found before the first false alarm
    stands at the edge, as 0 has no logarithm."""
    least = 1 / (2 * max(curve.non_members for curve in curves))
    return least, [[(max(f, least), t) for f, t in zip(curve.fpr, curve.tpr, strict=True) if t > 0] for curve in curves]


def roc_svg(curves: Sequence[Curve]) -> str:
    """ROC curves, linear beside logarithmic: what matters about an attack is where false alarms are rare."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.3), layout="constrained")
        linear, rare = figure.subplots(1, 2)
        least, above = logarithmic(curves)
        for i, (curve, shown) in enumerate(zip(curves, above, strict=True)):
            style = {"ls": _DASHES[i % len(_DASHES)], "lw": 1.4, "color": colour_of(curve.name)}
            linear.plot(curve.fpr, curve.tpr, label=f"{curve.name} ({curve.auc:.3f})", **style)
            rare.plot([f for f, _ in shown], [t for _, t in shown], drawstyle="steps-post", **style)
        for axes in (linear, rare):
            axes.plot([least, 1], [least, 1], color="#888", lw=0.8, ls=(0, (1, 2)), label="guessing (0.500)")
            axes.set_xlabel("false positive rate")
        linear.set_ylabel("true positive rate")
        linear.legend(fontsize=8, loc="lower right", title="attack (AUC)", title_fontsize=8)
        rare.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        return svg(figure)
