"""The Pareto page: a Dash app for one sweep.

Dash was chosen because Plotly draws the project's other figures, its callbacks are Python without a build step, and it
serves all of its JavaScript itself, so the page works without a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, no_update

from dashboards.pareto import parts
from dashboards.pareto.data import Limits, PageData, bounds, limit_at, opening_axes
from dashboards.pareto.guard import guard
from dashboards.pareto.layout import INDEX, page, with_slider
from dashboards.pareto.scatter import Chart, scatter, view_of
from dashboards.pareto.selection import comparing, picking, selection
from dashboards.pareto.source import Source
from sweeps.results.recommendation import leakage_of

_HERE = Path(__file__).parent


def create(
    source: Source,
    *,
    output: Path,
    mlflow: str | None = None,
    optuna: str | None = None,
    tracking_uri: str | None = None,
    seconds: float = 4.0,
) -> Dash:
    """Build the Dash app of one sweep.

    Args:
        output: the file that Pick writes.
        mlflow: address of the MLflow UI, and `optuna` of Optuna's dashboard; None if there is none.
        tracking_uri: of the store, if it has moved since the sweep.
        seconds: time between two checks for changes of the sweep.
    """
    app = Dash(
        "edp-sweep",
        assets_folder=str(_HERE / "assets"),
        index_string=INDEX,
        title=f"{source.sweep.name} – EDP Sweeps",
        update_title="",
        add_log_handler=False,
        enable_mcp=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    links = {"MLflow": source.run_page(mlflow, None, tracking_uri) if mlflow else None, "Optuna": optuna}
    limits: Mapping[Any, float] = source.read()[1].recipe.search.limits
    app.layout = page(source.sweep.name, output, links, seconds, limits)
    _state(app, source)
    _limits(app, source, {name: limits.get(name) for name in with_slider(limits)})
    _charts(app, source)
    _trees(app)
    _table(app, source)
    selection(app, source, mlflow, tracking_uri)
    comparing(app, source)
    picking(app, source, output, tracking_uri)
    guard(app)
    return app


def _state(app: Dash, source: Source) -> None:
    """Register the callbacks of the state line and of the recommendation."""

    @app.callback(Output("version", "data"), Input("tick", "n_intervals"), State("version", "data"))
    def look(_: int | None, known: str | None) -> Any:
        version, _found = source.read()
        return version if version != known else no_update

    @app.callback(Output("state", "children"), Output("objectives", "children"), Input("version", "data"))
    def line(_: str | None) -> tuple[str, str]:
        found = source.read()[1]
        return parts.state_line(found), parts.objectives_line(found)

    @app.callback(
        Output("answer", "children"),
        Output("why", "children"),
        Output("best", "disabled"),
        Output("advice", "data"),
        Input("version", "data"),
        Input("limits", "data"),
    )
    def answer(_: str | None, limits: Limits) -> Any:
        found = source.read()[1]
        if found.release is not None:
            chosen = found.first
            head = "The released model" + (f": settings of {chosen.name}" if chosen else "")
            return head, parts.released(found, found.release, limits), chosen is None, chosen and chosen.key
        free = dict.fromkeys(found.recipe.search.limits, math.inf)  # a slider at its end sets no limit
        advice = found.recommended(free | limits)
        if advice.point is None:
            head, _, why = advice.why.partition(": ")
            return head, f"{why[0].upper()}{why[1:]}", True, None
        name = advice.point.name
        why = f"{advice.why} It is {found.choice(limits)}."
        return f"Recommended: {found.candidates[name].name}", why, False, name


def _limits(app: Dash, source: Source, names: Mapping[str, float | None]) -> None:
    """Register the callbacks of the sliders, whose ranges grow with the sweep and hold the recipe's limits."""

    @app.callback(
        [Output(f"limit-{name}", prop) for name in names for prop in ("min", "max", "step", "value")],
        Input("version", "data"),
        Input("reset", "n_clicks"),
        [State(f"limit-{name}", prop) for name in names for prop in ("max", "value")],
    )
    def ranges(_: str | None, __: int | None, *before: Any) -> list[Any]:
        settings: list[Any] = []
        found = source.read()[1]
        for (name, own), end, value in zip(names.items(), before[::2], before[1::2], strict=True):
            if found.chosen_by(name) not in found.axes:  # nothing is measured yet
                settings += [no_update] * 4
                continue
            low, high, step = source.computed(_bounds, name, own)
            # A slider at its end sets no limit, and still sets none when the range grows.
            free = ctx.triggered_id == "reset" or None in (value, end) or float(value) >= float(end)
            settings += [low, high, step, high if free else max(low, min(high, float(value)))]
        return settings

    @app.callback(
        Output("limits", "data"),
        [Output({"type": "limit-text", "key": name}, "children") for name in names],
        Output("remain", "children"),
        Input("version", "data"),
        [Input(f"limit-{name}", "value") for name in names],
    )
    def limit(_: str | None, *values: float | None) -> list[Any]:
        found = source.read()[1]
        within: Limits = {}
        words = []
        for (name, own), at in zip(names.items(), values, strict=True):
            axis = found.axis(found.chosen_by(name))
            end, step = source.computed(_bounds, name, own)[1:]
            if at is None or float(at) >= end or axis.key not in found.axes:
                words.append("no limit")
                continue
            within[name] = limit_at(axis, float(at), step, own)
            words.append(f"≤ {axis.text(within[name])}")
        return [within, *words, parts.remain_line(found, within)]


def _bounds(snapshot: PageData, name: str, own: float | None) -> tuple[float, float, float]:
    return bounds(snapshot.axis(snapshot.chosen_by(name)), list(snapshot.candidates.values()), own)


def _charts(app: Dash, source: Source) -> None:
    """Register the callback that draws the charts, and the one that marks the selection in them.

    The browser marks it, since a chart of thousands of points takes seconds to redraw.
    """

    @app.callback(
        Output("first", "figure"),
        Output("empty", "children"),
        Output("scatter", "figure"),
        Output("hint", "children"),
        Input("version", "data"),
        Input("limits", "data"),
    )
    def draw(_: str | None, limits: Limits) -> Any:
        return source.computed(_drawn, tuple(sorted(limits.items())))

    app.clientside_callback(
        ClientsideFunction("edp", "mark"),
        Output("marked", "data"),
        [Input(name, "data") for name in ("selected", "pinned")],
        [Input(name, "figure") for name in ("first", "scatter")],
    )


def _drawn(found: PageData, limits: tuple[tuple[str, float], ...]) -> tuple[Chart, str, Chart, str]:
    """Return SER against ε, and the first two objectives against each other, each with its sentences."""
    if not found.candidates:
        nothing: Chart = {"data": [], "layout": {"xaxis": {"visible": False}, "yaxis": {"visible": False}}}
        return nothing, "No trial is complete yet; points appear here as they end.", nothing, ""

    def chart(*keys: str) -> tuple[Chart, str]:
        x, y, colour = map(found.axis, keys)
        words = view_of(found, x, y, dict(limits)).note() + parts.lines_line(found, x, y)
        return scatter(found, dict(limits), x, y, colour), words

    first, words = chart("epsilon", found.chosen_by("ser"), found.chosen_by(leakage_of(found.recipe)))
    second, hint = chart(*opening_axes(found), "epsilon")
    beyond = sum(math.isinf(candidate.metrics["epsilon"]) for candidate in found.candidates.values())
    if beyond:
        words = f"{beyond} of {len(found.candidates)} have an infinite ε and are not drawn here. {words}"
    return first, words, second, f"{hint}Lower left is better."


def _trees(app: Dash) -> None:
    """Draw the table and the details in the browser, which takes Dash a third of a second."""
    for name in ("rows", "details"):
        app.clientside_callback(
            ClientsideFunction("edp", name), Output(f"{name}-put", "data"), Input(f"{name}-tree", "data")
        )


def _table(app: Dash, source: Source) -> None:
    app.clientside_callback(
        ClientsideFunction("edp", "sort"),
        Output("sort", "data"),
        Input("pressed-head", "data"),
        State("sort", "data"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("table-page", "data"),
        Input("previous", "n_clicks"),
        Input("next", "n_clicks"),
        Input("limits", "data"),
        Input("sort", "data"),
        Input("dominated", "value"),
        State("table-page", "data"),
        prevent_initial_call=True,
    )
    def turn(_: int, __: int, ___: Limits, ____: Any, _____: Any, now: int) -> int:
        step = {"previous": -1, "next": 1}.get(ctx.triggered_id)
        return max(0, now + step) if step else 0

    @app.callback(
        Output("rows-tree", "data"),
        Output("table-where", "children"),
        Output("previous", "disabled"),
        Output("next", "disabled"),
        Input("version", "data"),
        Input("limits", "data"),
        Input("sort", "data"),
        Input("dominated", "value"),
        Input("table-page", "data"),
    )
    def rows(_: str | None, limits: Limits, sort: dict[str, Any], dominated: list[str], number: int) -> Any:
        found = source.read()[1]
        members = parts.table_members(found, limits, bool(dominated), sort["key"], sort["descending"])
        number = min(number, max(0, (len(members) - 1) // parts.ROWS))
        first = number * parts.ROWS
        shown = members[first : first + parts.ROWS]
        where = f"{first + 1}–{first + len(shown)} of {len(members)}" if members else "none"
        more = first + len(shown) < len(members)
        return parts.table(found, shown, sort["key"], sort["descending"]), where, number == 0, not more
