"""The table and the figure of a result: the paper's points at the ε that they have, our front, SGD's line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweeps.results.confirmed import estimate
from sweeps.results.front_figure import STYLE, svg
from sweeps.text.figures import MARK, epsilon_cell
from tests.benchmarks.table1.points import PAPER, ROWS, Entry, Measurement, Note, Result, names_of, paper_entries

_NAMES = {
    "sgd": "SGD",
    "paper_none": "paper, no decay",
    "paper_linear": "paper, linear decay",
    "paper_exponential": "paper, exponential decay",
    "edp_front": "the paper's mechanism, searched",
    "private_8": "private recipe, ε = 8",
    "private_3": "private recipe, ε = 3",
    "private_1": "private recipe, ε = 1",
    "schema_8": "private recipe with a schema's samples, ε = 8",
    "schema_3": "private recipe with a schema's samples, ε = 3",
    "schema_1": "private recipe with a schema's samples, ε = 1",
}
_LOOKS: dict[str, Any] = {
    "paper": {"marker": "s", "color": "#c8553d", "label": "paper, at the ε it has"},
    "edp_front": {"marker": "D", "color": "#31688e", "label": "its mechanism, searched here"},
    "private": {"marker": "o", "color": "#3c8d40", "label": "private recipe"},
    "schema": {"marker": "^", "color": "#b07aa1", "label": "private recipe with a schema's samples"},
}
_RECOMMENDED = "private_8"


def as_markdown(result: Result) -> str:
    """Return a table and its verdicts for each row that was measured."""
    parts = [_row_markdown(result, row) for row in _measured(result)]
    return "\n".join(parts) if parts else "No row was measured.\n"


def _row_markdown(result: Result, row: str) -> str:
    entries, (corpus, model) = _of(result, row), names_of(row)
    measurements = [one for one in result.measurements if (one.corpus, one.model) == (corpus, model)]
    sgd = next((one for one in entries if one.point == "sgd"), None)
    # Of a front's points, whose name is one, the SER says which it is of.
    notes = {(note.point, fmean(note.sers)): note for about in measurements for note in about.points}
    lines = [
        f"### {corpus}, {model}",
        "",
        "| point | SER (%) | ΔSER | MIA AUC (%) | ΔMIA | LiRA TPR at 1 % FPR (%) | ε honest | log10 ε claimed | s |",
        "|---|---|---|---|---|---|---|---|---|",
        "| SGD, the paper's | {:.1f} | | {:.1f} | | | ∞ | | |".format(
            *(100 * rate for rate in _baseline_of_paper(row))
        ),
        *(_line(one, _baseline(one, sgd), notes.get((one.point, one.ser))) for one in entries),
        "",
        f"Δ: in per cent of SGD's; of the paper's SGD for the paper's points. {MARK}: no formal guarantee. ±: half the "
        f"95 % interval over seeds. δ = {paper_entries(row)[0].delta:g}.",
        "",
        _how_lira(measurements),
        "",
        *(f"- {line}" for line in verdicts(entries)),
        "",
        *(line for about in measurements for line in _how(about, entries)),
    ]
    return "\n".join(lines)


def _how_lira(measurements: Sequence[Measurement]) -> str:
    """Name the models that LiRA compares the points with."""
    kinds = {"sgd": "trained without privacy", "own": "trained as the point's own"}
    notes = [note for about in measurements for note in about.points]
    found = {kind: "; ".join(_NAMES[note.point] for note in notes if note.references == kind) for kind in kinds}
    words = ", and with models ".join(f"{kinds[kind]} ({names})" for kind, names in found.items() if names)
    return f"LiRA, the stronger of online and offline, compares with models {words}."


def _how(about: Measurement, entries: Sequence[Entry]) -> list[str]:
    """Return date, machine and command of points that were measured together."""
    command = next(one.command for one in entries if one.point == about.points[0].point)
    where = f"{about.machine.get('processor')} with {about.machine.get('cores')} cores"
    return [
        f"{about.trials} trials a search, {about.date}, {where}, torch {about.versions.get('torch')}:",
        "",
        f"    {command}",
        "",
    ]


def _line(one: Entry, baseline: tuple[float, float] | None, note: Note | None) -> str:
    ser, auc = baseline or (math.nan, math.nan)
    cells = [
        _NAMES[one.point],
        _percent(one.ser, note.sers if note else []),
        _delta(one.ser, ser),
        _percent(one.mia_auc, note.mia_aucs if note else []),
        _delta(one.mia_auc, auc),
        f"{100 * note.lira_tpr_at_1pct_fpr:.1f}" if note else "",
        epsilon_cell(one.epsilon) if one.epsilon is not None else "∞",
        f"{math.log10(one.epsilon_paper):.1f}" if one.epsilon_paper is not None else "",
        f"{one.seconds:.0f}" if one.seconds is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


def _delta(value: float, baseline: float) -> str:
    if math.isnan(baseline):
        return ""
    change = 100 * (value - baseline) / baseline if baseline else math.nan
    return f"{change:+.1f}" if abs(change) < 1000 else f"{change:+.0f}"


def _percent(mean: float, values: Sequence[float]) -> str:
    """Return a mean, with half the 95 % interval if there are several seeds."""
    digits = 1 if mean >= 0.01 else 2  # of generated corpora SGD's SER is a tenth of a per cent
    if len(values) < 2:
        return f"{100 * mean:.{digits}f}"
    found = estimate(list(values))
    return f"{100 * mean:.{digits}f} ± {50 * (found.upper - found.lower):.{digits}f}"


def verdicts(entries: Sequence[Entry]) -> list[str]:
    """Say whether our points are at or below each of the paper's in SER and MIA AUC, and by how many per cent points.

    An attack that is worse than guessing counts as guessing.
    """

    def gaps_of(ours: Entry, theirs: Entry) -> tuple[float, float]:
        return ours.ser - theirs.ser, max(ours.mia_auc, 0.5) - max(theirs.mia_auc, 0.5)

    paper = [one for one in entries if one.point.startswith("paper_")]
    lines = []
    for name in ("edp_front", _RECOMMENDED):
        ours = [one for one in entries if one.point == name]
        for theirs in paper if ours else ():
            gaps = min((gaps_of(one, theirs) for one in ours), key=max)
            verb = "dominates" if max(gaps) <= 0 else "does not dominate"
            words = ", ".join(
                f"{what} {abs(100 * gap):.1f} points {'lower' if gap <= 0 else 'higher'}"
                for what, gap in zip(("SER", "MIA AUC"), gaps, strict=True)
            )
            lines.append(f"{_NAMES[name]}, {verb} {_NAMES[theirs.point]}: {words}.")
    return lines


def figure(result: Result) -> str:
    """Draw SER against ε as SVG, a panel for each row that was measured."""
    rows = _measured(result)
    count = len(rows)
    across = min(3, max(1, count))
    with mpl.rc_context(STYLE | {"svg.hashsalt": "table1"}):  # the same result gives the same file
        drawn = Figure(
            figsize=(3.6 * across + 1.0, 3.0 * math.ceil(max(1, count) / across) + 0.5), layout="constrained"
        )
        panels = drawn.subplots(math.ceil(max(1, count) / across), across, squeeze=False).flat
        for axes, row in zip(panels, rows, strict=False):
            _panel(axes, _of(result, row), ", ".join(names_of(row)))
        for axes in list(drawn.axes)[count:]:
            axes.set_visible(False)
        handles = {
            label: handle
            for axes in drawn.axes[:count]
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        drawn.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
        return svg(drawn)


def _panel(axes: Axes, entries: Sequence[Entry], title: str) -> None:
    for kind, looks in _LOOKS.items():
        points = sorted(
            (one.epsilon, one.ser) for one in entries if one.point.startswith(kind) and one.epsilon is not None
        )
        if not points:  # nor a line in the legend
            continue
        line = "-" if kind in ("private", "schema") else "none"
        axes.plot([x for x, _ in points], [y for _, y in points], ls=line, lw=0.9, ms=5, mec="#333", mew=0.6, **looks)
    for one in entries:
        if one.point == "sgd":
            axes.axhline(one.ser, color="#555", lw=0.9, ls="--", label="SGD here")
    axes.axhline(_baseline_of_paper(_row(entries[0]))[0], color="#c8553d", lw=0.9, ls=":", label="SGD, the paper's")
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7) if high < 30 * low else (1, 3)))
    axes.yaxis.set_major_formatter(lambda ser, _: f"{100 * ser:.3g}%")  # decimals only where SER is below a per cent
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_title(title)
    axes.set_xlabel("ε (honest)")
    axes.set_ylabel("SER on the test split")


def _measured(result: Result) -> list[str]:
    """Return the rows with a measurement, in the paper's order."""
    known = {(about.corpus, about.model) for about in result.measurements}
    return [row for row in ROWS if names_of(row) in known]


def _of(result: Result, row: str) -> list[Entry]:
    """Return the points of a row."""
    return [one for one in result.rows if (one.corpus, one.model) == names_of(row)]


def _row(one: Entry) -> str:
    return next(row for row in ROWS if names_of(row) == (one.corpus, one.model))


def _baseline(one: Entry, sgd: Entry | None) -> tuple[float, float] | None:
    """Return SER and MIA AUC of the SGD that a point is compared with; None for SGD itself, or if it is not known."""
    if one.point.startswith("paper_"):
        return _baseline_of_paper(_row(one))
    return (sgd.ser, sgd.mia_auc) if sgd is not None and one is not sgd else None


def _baseline_of_paper(row: str) -> tuple[float, float]:
    ser, auc, _ = PAPER[row]
    return ser / 100, auc / 100
