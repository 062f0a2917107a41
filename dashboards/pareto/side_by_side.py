"""Two candidates side by side."""

from __future__ import annotations

from dash import html

from dashboards.pareto.data import Axis, Candidate, Snapshot, is_number, text
from sweeps.config.parts import Objective
from sweeps.results.ties import difference

_ESTIMATED: tuple[Objective, ...] = ("ser", "mia_auc", "mia_tpr_at_1pct_fpr")


def side_by_side(snapshot: Snapshot, one: Candidate, other: Candidate) -> html.Table:
    """Return a table of two candidates: metrics, 95 % intervals of the differences, and the settings that differ."""
    rows = [
        _row(axis.short, axis, one, other, _apart(axis, one, other))
        for axis in snapshot.axes.values()
        if axis.key in one.metrics or axis.key in other.metrics
    ]
    names = dict.fromkeys((*one.params, *other.params))
    rows.append(_row("epochs", Axis("epoch", "epochs"), one, other))
    rows += [_row(n, Axis(n, n), one, other) for n in names if one.params.get(n) != other.params.get(n)]
    heads = ("", one.name, other.name, "difference (95%)")
    return html.Table(
        [html.Thead(html.Tr([html.Th(head, scope="col") for head in heads])), html.Tbody(rows)], className="figures two"
    )


def _row(name: str, axis: Axis, one: Candidate, other: Candidate, apart: str = "") -> html.Tr:
    cells = [html.Td(text(axis, c.metrics.get(axis.key, c.value(axis.key)))) for c in (one, other)]
    return html.Tr([html.Th(name, scope="row"), *cells, html.Td(apart)])


def _apart(axis: Axis, one: Candidate, other: Candidate) -> str:
    """Return the difference, with an interval where both metrics have one."""
    for name in _ESTIMATED:
        if name == axis.key and one.interval(name) and other.interval(name):
            low, high = difference(one.metrics, other.metrics, name)
            words = f"{low:+.1%} to {high:+.1%}" if axis.percent else f"{low:+.3f} to {high:+.3f}"
            return words + (", noise" if low <= 0 <= high else "")
    a, b = one.value(axis.key), other.value(axis.key)
    if not is_number(a) or not is_number(b) or axis.log:
        return ""
    return f"{a - b:+.1%}" if axis.percent else f"{a - b:+.3g}"
