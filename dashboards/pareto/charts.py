"""The callbacks that draw the page's charts, and the comparison with another sweep."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, html, no_update

from dashboards.pareto import parts
from dashboards.pareto.data import METRICS, PageData, is_categorical
from dashboards.pareto.layout import figures_row, figures_table
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from dashboards.pareto.style import Chart, blank
from dashboards.pareto.view import is_drawn, view_of
from edp.spec import UserError
from sweeps.results.confirmed import seeds_words
from sweeps.results.front import Candidate
from sweeps.results.recommendation import leakage_of
from sweeps.store.sweep import Sweep, all_sweeps
from sweeps.text.figures import FIGURES, WORTH, deciding_figure, epsilon_text


def charts(app: Dash, source: Source) -> None:
    """Register the callbacks that redraw the charts when the sweep, the limits or the selection changes."""
    _scatters(app, source)
    _marks(app)

    @app.callback([Output(f"{name}-card", "hidden") for name in CARDS], Input("version", "data"))
    def empty(_: str | None) -> list[bool]:
        shown = cards(source)
        return [name not in shown for name in CARDS]

    @app.callback(Output("beside", "options"), Input("version", "data"))
    def sweeps(_: str | None) -> list[str]:
        return others(source)

    @app.callback(Output("sweeps", "children"), Input("version", "data"), Input("beside", "value"))
    def compare(_: str | None, name: str | None) -> Any:
        other = beside(source, name)
        return "" if other is None else two_sweeps(source.read()[1], other)


CARDS = ("first", "scatter", "sweeps")
"""The cards that are hidden while they have nothing to show."""


def cards(source: Source) -> set[str]:
    """Return the cards that have something to show."""
    found = source.read()[1]
    ser = found.axis(found.chosen_by("ser"))
    shown = {
        "first": any(is_drawn(c, found.axis("epsilon")) and is_drawn(c, ser) for c in found.candidates.values()),
        "scatter": bool(found.candidates),
        "sweeps": bool(others(source)),
    }
    return {name for name, has in shown.items() if has}


def _scatters(app: Dash, source: Source) -> None:
    """Register the callbacks of the opening chart and of the chart with chosen axes."""

    @app.callback(Output("x", "options"), Output("y", "options"), Output("colour", "options"), Input("version", "data"))
    def options(_: str | None) -> Any:
        every, numbers = source.computed(_options)
        return every, every, numbers

    shown = {name: Input(name, "data") for name in ("version", "limits", "theme", "narrow")}
    shown["name"] = Input("beside", "value")

    def drawn(found: PageData, x: str, y: str, colour: str, *look: Any) -> tuple[Chart, str]:
        """Return a chart, and sentences on points outside its range and on its colours."""
        most, theme, narrow, name, _ = look
        limits = dict(most)
        across, up, shade = (found.axis(key) for key in (x, y, colour))
        figure = scatter(found, limits, across, up, shade, theme, narrow=narrow, beside=beside(source, name))
        notes = view_of(found, across, up, limits).note(), parts.colour_line(found, shade)
        return figure, "".join(notes) + parts.lines_line(found, across, up)

    def look_of(shown: dict[str, Any]) -> tuple[Any, ...]:
        other = _read(source, shown["name"])
        limits = tuple(sorted(shown["limits"].items()))
        return limits, shown["theme"], bool(shown["narrow"]), shown["name"], other and other[0]

    @app.callback(output=[Output("first", "figure"), Output("empty", "children")], inputs={"shown": shown})
    def draw_first(shown: dict[str, Any]) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        found = source.read()[1]
        if not found.candidates:
            return blank(shown["theme"]), over_epsilon(found)
        ser, leakage = (found.chosen_by(key) for key in ("ser", leakage_of(found.recipe)))
        figure, words = source.computed(drawn, "epsilon", ser, leakage, *look_of(shown))
        return figure, f"{over_epsilon(found)} {words}"

    @app.callback(
        output=[Output("scatter", "figure"), Output("hint", "children")],
        inputs={"shown": shown} | {name: Input(name, "value") for name in ("x", "y", "colour")},
    )
    def draw_scatter(shown: dict[str, Any], x: str, y: str, colour: str) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        found = source.read()[1]
        if not found.candidates:
            return blank(shown["theme"]), ""
        figure, words = source.computed(drawn, x, y, colour, *look_of(shown))
        return figure, words + parts.hint(found.axis(x), found.axis(y))


def _options(found: PageData) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return all quantities as options of an axis, and those that are numbers."""
    axes = found.axes or {a.key: a for a in METRICS}
    every = [{"label": a.label, "value": a.key} for a in axes.values()]
    candidates = list(found.candidates.values())
    return every, [option for option in every if not is_categorical(axes[option["value"]], candidates)]


def over_epsilon(found: PageData) -> str:
    """Return a sentence on the candidates that a chart over ε cannot show; "" if it shows all."""
    if not found.candidates:
        return "No trial is complete yet; points appear here as they end."
    beyond = sum(math.isinf(candidate.point.metrics["epsilon"]) for candidate in found.candidates.values())
    return f"{beyond} of {len(found.candidates)} have an infinite ε and are not drawn here." if beyond else ""


def _marks(app: Dash) -> None:
    """Register the callback that marks the selection, in the browser: a redrawn chart takes seconds."""
    app.clientside_callback(
        ClientsideFunction("edp", "mark"),
        Output("marked", "data"),
        [Input(name, "data") for name in ("selected", "pinned", "theme")],
        [Input(name, "figure") for name in ("first", "scatter")],
    )


def others(source: Source) -> list[str]:
    """Return the names of the storage's other sweeps."""
    return [sweep.name for sweep in all_sweeps(source.sweep.folder.parent) if sweep.name != source.sweep.name]


@functools.lru_cache(maxsize=4)
def _source(storage: Path, name: str) -> Source:
    return Source(Sweep.existing(storage, name))


def beside(source: Source, name: str | None) -> PageData | None:
    """Return the snapshot of the sweep `name`; None if it cannot be read."""
    read = _read(source, name)
    return read and read[1]


def _read(source: Source, name: str | None) -> tuple[str, PageData] | None:
    """Return the version and the snapshot of the sweep `name`; None if it cannot be read."""
    if name is None or name not in others(source):
        return None
    try:
        return _source(source.sweep.folder.parent, name).read()
    except UserError:
        return None


def two_sweeps(one: PageData, other: PageData) -> html.Div:
    """Return a table that compares two sweeps: what they searched, their lowest SER by ε, and their recommendations."""
    rows = [("corpus", *(s.recipe.corpus.name for s in (one, other)))]
    rows += [("model", *(s.recipe.model.kind.upper() for s in (one, other)))]
    rows += [("trials", *(", ".join(f"{n} {state}" for state, n in s.counts.items()) for s in (one, other)))]
    for most, _ in WORTH[:-1]:
        rows += [(f"lowest validation SER at ε ≤ {most:g}", *(_lowest(s, most) for s in (one, other)))]
    rows += [("recommended", *(_advised(s) for s in (one, other)))]
    rows += [("ε of the whole sweep", *(s.epsilon_words for s in (one, other)))]
    table = figures_table(("", one.record.name, other.record.name), [figures_row(*row) for row in rows])
    same = one.recipe.corpus == other.recipe.corpus
    warning = "" if same else "The sweeps have different corpora, so their figures can hardly be compared."
    return html.Div([table, html.P(warning, className="note")])


def _lowest(snapshot: PageData, most: float) -> str:
    found = [c for c in snapshot.candidates.values() if c.metrics["epsilon"] <= most]
    return _figure(snapshot, min(found, key=lambda c: c.point.selection_figures["ser"])) if found else "none"


def _advised(snapshot: PageData) -> str:
    if (point := snapshot.advice().point) is None:
        return "nothing"
    return f"{_figure(snapshot, snapshot.candidates[point.name])}, ε {epsilon_text(point.metrics['epsilon'])}"


def _figure(snapshot: PageData, candidate: Candidate) -> str:
    metrics, ser = candidate.metrics, deciding_figure(candidate.metrics, "ser")
    spread = f" ({ends})" if (ends := ser.ends(metrics)) else ""
    again = f"; {seeds}" if (seeds := seeds_words(snapshot.again.get(candidate.key, {}))) else ""
    return f"{candidate.key}: {ser.cell(metrics)}{spread}, test {FIGURES['ser'].cell(metrics)}{again}"
