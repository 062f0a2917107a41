"""The callbacks that draw the page's charts, also with another sweep beside this one."""

from __future__ import annotations

import math
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, no_update

from dashboards.pareto import parts
from dashboards.pareto.data import METRICS, Limits, Snapshot, cost_key, is_categorical
from dashboards.pareto.parallel import parallel
from dashboards.pareto.scatter import scatter
from dashboards.pareto.source import Source
from dashboards.pareto.style import blank
from dashboards.pareto.sweeps import beside, others, two_sweeps
from sweeps.config.parts import metric_of
from sweeps.results.front import epsilon_varies
from sweeps.results.recommendation import leakage_of


def charts(app: Dash, source: Source) -> None:
    """Register the callbacks that redraw the charts when the sweep, the limits or the selection changes."""
    _beside(app, source)
    _scatters(app, source)
    _parallel(app, source)


def _beside(app: Dash, source: Source) -> None:
    """Register the callbacks that draw another sweep beside this one."""

    @app.callback(Output("beside", "options"), Input("version", "data"))
    def sweeps(_: str | None) -> list[str]:
        return others(source)

    @app.callback(Output("sweeps", "children"), Input("version", "data"), Input("beside", "value"))
    def compare(_: str | None, name: str | None) -> Any:
        other = beside(source, name)
        return "" if other is None else two_sweeps(source.read()[1], other)


def _scatters(app: Dash, source: Source) -> None:
    """Register the callbacks of the opening chart and of the chart with chosen axes."""

    @app.callback(Output("x", "options"), Output("y", "options"), Output("colour", "options"), Input("version", "data"))
    def options(_: str | None) -> Any:
        found = source.read()[1]
        axes = found.axes or {a.key: a for a in METRICS}
        every = [{"label": a.label, "value": a.key} for a in axes.values()]
        candidates = list(found.candidates.values())
        numbers = [o for o in every if not is_categorical(axes[o["value"]], candidates)]
        return every, every, numbers

    shown = {name: Input(name, "data") for name in ("version", "limits", "theme", "narrow")}
    shown["name"] = Input("beside", "value")

    def drawn(x: str, y: str, colour: str, theme: str, name: str | None, **shown: Any) -> Any:
        found = source.read()[1]
        if not found.candidates:
            return blank(theme)
        across, up, shade = (found.axis(key) for key in (x, y, colour))
        narrow, other = bool(shown["narrow"]), beside(source, name)
        return scatter(found, shown["limits"], across, up, shade, theme, narrow=narrow, beside=other)

    @app.callback(output=[Output("first", "figure"), Output("empty", "children")], inputs={"shown": shown})
    def draw_first(shown: dict[str, Any]) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        return drawn("epsilon", "ser", leakage_of(source.sweep.recipe), **shown), over_epsilon(source.read()[1])

    @app.callback(
        output=[Output("scatter", "figure"), Output("hint", "children")],
        inputs={"shown": shown} | {name: Input(name, "value") for name in ("x", "y", "colour")},
    )
    def draw_scatter(shown: dict[str, Any], x: str, y: str, colour: str) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        found = source.read()[1]
        where = parts.hint(found.axis(x), found.axis(y)) if found.candidates else ""
        return drawn(x, y, colour, **shown), where


def over_epsilon(found: Snapshot) -> str:
    """Return a sentence on the candidates that a chart over ε cannot show; "" where it shows all."""
    if not found.candidates:
        return "No trial is complete yet; points appear here as they end."
    beyond = sum(math.isinf(candidate.point.metrics["epsilon"]) for candidate in found.candidates.values())
    return f"{beyond} of {len(found.candidates)} have an infinite ε and are not drawn here." if beyond else ""


def _parallel(app: Dash, source: Source) -> None:
    """Register the callbacks of the parallel coordinates and of the selection in all charts."""

    @app.callback(
        Output("parallel", "figure"),
        Input("version", "data"),
        Input("limits", "data"),
        Input("colour", "value"),
        Input("theme", "data"),
    )
    def draw_parallel(_: str | None, limits: Limits, colour: str, theme: str | None) -> Any:
        if theme is None:
            return no_update
        found = source.read()[1]
        if not found.candidates:
            return blank(theme)
        objectives = (metric_of(objective) for objective in found.recipe.search.objectives)
        measured = dict.fromkeys(("ser", "mia_auc", *objectives, "epsilon", cost_key(found.axes)))
        if not epsilon_varies([c.point for c in found.candidates.values()]):
            del measured["epsilon"]
        searched = [a for key, a in found.axes.items() if key not in {m.key for m in METRICS}]
        axes = searched + [found.axes[key] for key in measured if key in found.axes]
        return parallel(found, limits, axes, found.axis(colour), theme)

    # In the browser: see `scatter`.
    app.clientside_callback(
        ClientsideFunction("edp", "mark"),
        Output("marked", "data"),
        [Input(name, "data") for name in ("selected", "pinned", "theme")],
        [Input(name, "figure") for name in ("first", "scatter", "parallel")],
    )
