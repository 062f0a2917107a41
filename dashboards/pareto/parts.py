"""Sentences and tables of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import html

from dashboards.pareto.data import Limits, PageData, cost_key, is_number, within
from dashboards.pareto.layout import aria, figures_row, figures_table
from dashboards.pareto.scatter import references
from sweeps.config.parts import metric_of
from sweeps.results.confirmed import seeds_words
from sweeps.results.front import Candidate, over_limits
from sweeps.store.records import Point
from sweeps.text.columns import HOLLOW, HOLLOW_WORDS, TPR
from sweeps.text.figures import (
    FIGURES,
    Figure,
    enumerated,
    labels_remark,
    noise_read_words,
    permitted_words,
    privacy_statement,
    read_text,
    shadow_words,
)
from trainables.records.pareto import SelectionFigures, difference

ROWS = 25
"""The number of the table's rows that are shown at once."""

_NOT_IN_TABLE = ("mia_auc", f"valid_{TPR}", TPR, "intent_accuracy", "slot_f1", "epoch")
_COSTS = ("gpu_seconds", "worker_seconds")


def state_line(snapshot: PageData) -> str:
    """Return the sweep's state, its counts of trials and its ε in one line."""
    if snapshot.problem:
        return f"cannot be read any more; this is its last state: {snapshot.problem}"
    record, recipe = snapshot.record, snapshot.recipe
    counts = ", ".join(f"{n} {state}" for state, n in snapshot.counts.items()) or "no trials yet"
    public, whole = (", which is public", "in all") if snapshot.plan is not None else ("", "of the whole sweep")
    labels = "".join(f", {words}" for words in labels_remark(snapshot.private_corpus))
    return (
        f"{snapshot.state}: {counts} of {record.wanted} trials · {recipe.model.kind.upper()} on {recipe.corpus.name}"
        f"{public} · ε {whole}: {snapshot.epsilon_words}{labels}"
    )


def released(snapshot: PageData, release: Point, limits: Limits) -> list[Any]:
    """Return the headline as elements, the released model in bold, and the limits that it is over."""
    first, *others = snapshot.headline
    own = snapshot.recipe.search.limits.items()  # of the trials alone
    if over := _over(snapshot, release.selection_figures, dict(limits.items() - own)):
        others = [f"It is outside the limits: {over}.", *others]
    return [html.Strong(first), *(part for line in others for part in (html.Br(), line))]


def remain_line(snapshot: PageData, limits: Limits) -> str:
    """Return a sentence that counts the candidates within the limits."""
    found = list(snapshot.candidates.values())
    left = [c for c in found if within(snapshot, c, limits)]
    front = sum(c.on_front for c in left)
    return f"{len(left)} of {len(found)} remain, {front} of {len(snapshot.front)} Pareto-optimal"


def objectives_line(snapshot: PageData) -> str:
    """Return a sentence on the objectives of the front, and on the metrics that have no part in it."""
    keys = [snapshot.chosen_by(metric_of(objective)) for objective in snapshot.recipe.search.objectives]
    names = [snapshot.axis(key).label for key in keys]
    shown = [snapshot.axis(key) for key in map(snapshot.chosen_by, ("ser", "mia_auc", "epsilon"))]
    others = [axis.name for axis in shown if axis.key in snapshot.axes and axis.key not in keys]
    alone = " alone" if len(names) == 1 else ""
    rest = f"; {enumerated(others)} {'have' if len(others) > 1 else 'has'} no part in it" if others else ""
    leaks = ". An AUC below 0.5 counts as 0.5" if any("mia_auc" in key for key in keys) else ""
    return f"The front is by {enumerated(names)}{alone}, the lower the better{rest}{leaks}."


def outside_line(snapshot: PageData, candidate: Candidate, limits: Limits) -> str:
    """Return a sentence on the limits that exclude a candidate; "" if none does."""
    over = _over(snapshot, snapshot.figures(candidate), limits)
    return f"{candidate.name} is outside the limits: {over}." if over else ""


def _over(snapshot: PageData, figures: SelectionFigures, limits: Limits) -> str:
    """Return the figures that are over their limits, with these; "" if none is."""
    words = []
    for name in over_limits(figures, limits):
        axis = snapshot.axis(snapshot.chosen_by(name))
        words.append(f"{axis.label} {axis.text(figures.get(name))} (limit: {axis.text(limits[name])})")
    return enumerated(words)


def lines_line(snapshot: PageData, x: Figure, y: Figure) -> str:
    """Return a sentence on the values of a chart's dashed and dotted lines; "" if it has none."""
    found = [(axis, *line) for axis in (x, y) for line in references(snapshot, axis)]
    lines = [f"{axis.name} of {name}: {axis.text(value)}" for axis, name, value, _ in found]
    return f"{'; '.join(lines)}. " if lines else ""


def dominated_note(snapshot: PageData, candidate: Candidate) -> str:
    """Return a sentence on a candidate's place: on the front, dominated, or tied."""
    names = ", ".join(snapshot.candidates[key].name for key in candidate.tied_with)
    if candidate.on_front:
        words = "Pareto-optimal: every point that is better in one objective is worse in another."
        if len(snapshot.recipe.search.objectives) == 1:
            words = "Pareto-optimal: it is the best in the one objective."
        if candidate.hollow:
            return f"{HOLLOW} {HOLLOW_WORDS[0].upper()}{HOLLOW_WORDS[1:]}: see {names}."
        return f"{words} ~ Its lead over {names} is within noise." if names else words
    better = snapshot.candidates.get(candidate.dominated_by or "")
    words = f"Dominated: {better.name if better else 'another'} is nowhere worse."
    return f"{words} ~ But {names} leads by no more than noise." if names else words


def details(snapshot: PageData, candidate: Candidate, run_url: str | None, limits: Limits) -> list[Any]:
    """Return the elements that show a configuration, its metrics and its guarantee."""
    spec = candidate.point.spec
    axes = [axis for axis in snapshot.axes.values() if axis.key in candidate.metrics]
    intervals = any(candidate.interval(axis.key) for axis in axes)
    rows = []
    for axis in axes:
        value = candidate.metrics[axis.key]
        cells = [axis.text(value)] + ([axis.ends(candidate.metrics)] if intervals else [])
        rows.append(figures_row(axis.head, *cells, axis.change(value, snapshot.baseline.get(axis.key))))
    seeds = seeds_words(snapshot.again.get(candidate.key, {}))
    heads = ["", "measured", *(["95% interval"] if intervals else []), "against SGD"]
    settings = [figures_row("epochs", str(candidate.point.epoch))]
    settings += [figures_row(name, Figure(name, name).text(value)) for name, value in candidate.params.items()]
    return [
        html.P(dominated_note(snapshot, candidate), className="standing"),
        html.P(_statement(snapshot, candidate, limits), className="statement", id="statement"),
        figures_table(heads, rows),
        *([html.P(f"{seeds[0].upper()}{seeds[1:]}.", className="note")] if seeds else []),
        *(html.P(line, className="note") for line in _leak_lines(candidate, spec.shadow.corpus.name)),
        html.H3("Configuration"),
        html.Table(html.Tbody(settings), className="figures"),
        *([html.P(html.A("Its run in MLflow", href=run_url, target="_blank"))] if run_url else []),
    ]


def _statement(snapshot: PageData, candidate: Candidate, limits: Limits) -> list[Any]:
    """Return the guarantee of a configuration, and of a trial on a proxy corpus that of the same settings."""
    edp = candidate.point.spec.edp
    if snapshot.plan is None:
        words = privacy_statement(candidate.metrics, edp, candidate.point.spec.corpus)
        return [html.Strong("Guarantee: "), f"{words}; {snapshot.choice(limits)}"]
    corpus, public = snapshot.plan.recipe.corpus, snapshot.recipe.corpus.name
    figures = f" The figures below are of the trial on {public}, which is public and costs no ε."
    if snapshot.release is None or snapshot.release.trial != candidate.point.trial:
        return [html.Strong(f"Not trained on {corpus.name}."), figures]
    words = privacy_statement(snapshot.release.metrics, snapshot.release.spec.edp, corpus)
    return [html.Strong(f"Guarantee of the model of {corpus.name}: "), f"{words}. It covers the choice.{figures}"]


def _leak_lines(candidate: Candidate, shadow: str) -> list[str]:
    """Return lines on the measured leakage, the attack that measured it, and the bound from the ledger."""
    metrics, lines = candidate.metrics, []
    if found := FIGURES[TPR].cell(metrics):
        lines.append(f"The attack's TPR: {found} FPR, by {shadow_words(shadow)}.")
    if permitted := permitted_words(metrics):
        lines.append(f"{permitted[0].upper()}{permitted[1:]}.")
    if read := noise_read_words(metrics):
        lines.append(f"Audit: {read}.")
    return lines


def side_by_side(snapshot: PageData, one: Candidate, others: Sequence[Candidate]) -> html.Table:
    """Return a table of candidates: metrics, with their differences from `one`, and the settings that differ.

    A difference of two measured figures is a 95 % interval. It has a column of its own if there is one other candidate,
    and stands below each figure otherwise.
    """
    every, alone = (one, *others), len(others) == 1
    rows = []
    for axis in snapshot.axes.values():
        if any(axis.key in candidate.metrics for candidate in every):
            apart = [_apart(axis, one, other) for other in others]
            cells = [
                _cell(axis, one),
                *(_cell(axis, o, "" if alone else a) for o, a in zip(others, apart, strict=True)),
            ]
            rows.append(figures_row(axis.head, *cells, *apart[:alone]))
    settings = [Figure("epoch", "epochs")]
    names = dict.fromkeys(name for candidate in every for name in candidate.params)
    settings += [Figure(n, n) for n in names if any(c.params.get(n) != one.params.get(n) for c in others)]
    rows += [figures_row(axis.label, *(_cell(axis, c) for c in every), *([""] * alone)) for axis in settings]
    heads = ("", *(candidate.name for candidate in every), *(["difference (95%)"] * alone))
    return figures_table(heads, rows, "figures two")


def _cell(axis: Figure, candidate: Candidate, apart: str = "") -> Any:
    figure = axis.text(candidate.metrics.get(axis.key, candidate.value(axis.key)))
    return [figure, html.Div(apart, className="apart")] if apart else figure


def _apart(axis: Figure, one: Candidate, other: Candidate) -> str:
    """Return the difference of two candidates; as an interval if both metrics have one."""
    a, b = one.value(axis.key), other.value(axis.key)
    if (of_a := one.interval(axis.key)) and (of_b := other.interval(axis.key)):
        low, high = difference(a, of_a, b, of_b)
        words = f"{100 * low:+.1f} to {100 * high:+.1f} points" if axis.percent else f"{low:+.3f} to {high:+.3f}"
        return words + (", noise" if low <= 0 <= high else "")
    return axis.change(a, b)


def table_members(
    snapshot: PageData, limits: Limits, dominated: bool, key: str | None, descending: bool
) -> list[Candidate]:
    """Return the table's candidates, sorted by `key`; without a key, the front first."""
    found = [c for c in snapshot.candidates.values() if (c.on_front or dominated) and within(snapshot, c, limits)]
    if key is None:
        return found
    numbers = sorted((c for c in found if is_number(c.value(key))), key=lambda c: c.value(key), reverse=descending)
    others = [c for c in found if not is_number(c.value(key))]
    return numbers + sorted(others, key=lambda c: str(c.value(key)), reverse=descending)


def table(snapshot: PageData, members: list[Candidate], key: str | None, descending: bool) -> Any:
    """Return the candidates as a table, which serves keyboards and screen readers in place of the charts.

    `assets/page.js` draws it, takes the presses of its buttons, and marks the selected row.
    """
    if not members:
        return html.P("Nothing is within the limits." if snapshot.candidates else "No trial is complete yet.")
    cost = cost_key(snapshot.axes)  # a second cost column would push the last settings out of view
    objectives = {snapshot.chosen_by(metric_of(objective)) for objective in snapshot.recipe.search.objectives}
    left_out = {*_NOT_IN_TABLE, *(key for key in _COSTS if key != cost)} - objectives
    columns = [a for a in snapshot.axes.values() if a.key not in left_out]
    arrow = "▼" if descending else "▲"
    order = "descending" if descending else "ascending"
    read = any("epsilon_read" in c.metrics for c in members)
    heads: list[Any] = []
    for axis in columns:
        head = html.Th(
            html.Button(
                axis.head + (f" {arrow}" if axis.key == key else ""),
                id={"type": "head", "key": axis.key},
                className="plain",
                title=f"sort by {axis.label}",
            ),
            scope="col",
            **aria(sort=order if axis.key == key else "none"),
        )
        heads += [head, "ε (read)"] if read and axis.key == "epsilon" else [head]
    rows = []
    for c in members:
        button = html.Button(
            f"{HOLLOW if c.hollow else '◆' if c.on_front else '○'} {c.name}{' ~' if c.tied_with else ''}",
            id={"type": "row", "key": c.key},
            className="row",
            **aria(pressed="false"),
        )
        # `value` draws an ε of 0 as 1e-12; the table shows 0.
        cells: list[str] = []
        for axis in columns:
            cells.append(axis.text(c.metrics.get(axis.key, c.value(axis.key))))
            cells += [read_text(c.metrics)] if read and axis.key == "epsilon" else []
        rows.append(figures_row(button, *cells))
    return figures_table(["configuration", *heads], rows, "members", **aria(describedby="table-key"))
