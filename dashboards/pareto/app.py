"""The Pareto page: a Dash app over one sweep.

Dash, because Plotly is what the project draws with already, its callbacks are Python and need no build step, and it
serves all of its JavaScript itself, so that the page works without a network.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, no_update

from dashboards.pareto import parts
from dashboards.pareto.cards import LIMITS
from dashboards.pareto.csv import download
from dashboards.pareto.data import METRICS, Axis, Limits, Snapshot, bounds, cost_key, is_categorical, opening_axes, text
from dashboards.pareto.guard import guard
from dashboards.pareto.layout import INDEX, page
from dashboards.pareto.parallel import parallel
from dashboards.pareto.scatter import scatter
from dashboards.pareto.search import search
from dashboards.pareto.selection import address, comparing, notes, picking, selection
from dashboards.pareto.source import Source
from dashboards.pareto.style import blank
from dashboards.pareto.sweeps import beside, others, two_sweeps
from sweeps.recipes.parts import metric_of
from sweeps.results.front import epsilon_varies
from sweeps.results.recommendation import leakage_of

_HERE = Path(__file__).parent


def create(
    source: Source,
    *,
    output: Path,
    hosts: set[str] | None = None,
    password: str | None = None,
    mlflow: str | None = None,
    tracking_uri: str | None = None,
    seconds: float = 4.0,
) -> Dash:
    """The app of one sweep.

    Args:
        output: the file that Pick writes.
        hosts: names that the page may be asked for under, so that no web site can reach it through a name of its
            own; any where None.
        password: of whoever may see it; None: everybody who reaches it.
        mlflow: address of the MLflow UI, where there is one.
        tracking_uri: of the store, where it has moved since the sweep.
        seconds: between two looks at the sweep.
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
    link = source.run_page(mlflow, None, tracking_uri) if mlflow else None
    token = secrets.token_urlsafe(32)
    app.layout = page(source.sweep.name, output, link, seconds, opening_axes(source.sweep.recipe), token)
    _theme(app)
    _state(app, source)
    _limits(app, source)
    _beside(app, source)
    _scatters(app, source)
    _parallel(app, source)
    _table(app, source)
    selection(app, source, mlflow, tracking_uri)
    address(app, source)
    comparing(app, source)
    notes(app, source, token)
    search(app, source)
    download(app, source)
    picking(app, source, output, tracking_uri, token)
    guard(app, hosts, password)
    return app


def _theme(app: Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("edp", "theme"),
        Output("theme", "data"),
        Output("toggle", "children"),
        Output("narrow", "data"),
        Input("toggle", "n_clicks"),
    )


def _axis(snapshot: Snapshot, key: str) -> Axis:
    return snapshot.axes.get(key) or Axis(key, key)


def _limit_axis(snapshot: Snapshot, name: str) -> Axis:
    return _axis(snapshot, cost_key(snapshot.axes) if name == "cost" else name)


def _state(app: Dash, source: Source) -> None:
    """What the sweep is doing, and what is recommended of what lies within the limits."""

    @app.callback(Output("version", "data"), Input("tick", "n_intervals"), State("version", "data"))
    def look(_: int | None, known: str | None) -> Any:
        version, _found = source.read()
        return version if version != known else no_update

    @app.callback(Output("state", "children"), Input("version", "data"))
    def state(_: str | None) -> str:
        return parts.state_line(source.read()[1])

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
        advice = found.advice(limits)
        if advice.point is None:
            head, _, why = advice.why.partition(": ")
            return head, f"{why[0].upper()}{why[1:]}", True, None
        name = advice.point.name
        return f"Recommended: {found.candidates[name].name}", advice.why, False, name


def _limits(app: Dash, source: Source) -> None:
    """The sliders: their ranges, which grow with the sweep, and what they let through."""
    names = list(LIMITS)

    @app.callback(
        [Output(f"limit-{name}", prop) for name in names for prop in ("min", "max", "step", "value")],
        [Output({"type": "limit-name", "key": name}, "children") for name in names],
        Input("version", "data"),
        Input("reset", "n_clicks"),
        Input("link", "data"),
        [State(f"limit-{name}", prop) for name in names for prop in ("max", "value")],
    )
    def ranges(_: str | None, __: int | None, link: dict[str, Any], *before: Any) -> list[Any]:
        found = source.read()[1]
        settings: list[Any] = []
        labels: list[Any] = []
        for i, name in enumerate(names):
            axis = _limit_axis(found, name)
            low, high, step = bounds(axis, list(found.candidates.values()))
            end, value = before[2 * i], before[2 * i + 1]
            if ctx.triggered_id is None or ctx.triggered_id == "link":
                value, end = _linked(link, name, axis), high
            # At its end a slider limits nothing, and goes on limiting nothing as the range grows.
            free = ctx.triggered_id == "reset" or value is None or float(value) >= float(end)
            settings += [low, high, step, high if free else max(low, min(high, float(value)))]
            labels.append(axis.label.split(" (")[0] if axis.label != axis.key else LIMITS[name])
        return settings + labels

    @app.callback(
        Output("limits", "data"),
        [Output({"type": "limit-text", "key": name}, "children") for name in names],
        Output("remain", "children"),
        Input("version", "data"),
        [Input(f"limit-{name}", "value") for name in names],
    )
    def limit(_: str | None, *values: float | None) -> list[Any]:
        found = source.read()[1]
        limits: Limits = {}
        words = []
        for name, value in zip(names, values, strict=True):
            axis = _limit_axis(found, name)
            high = bounds(axis, list(found.candidates.values()))[1]
            if value is None or float(value) >= high or axis.key not in found.axes:
                words.append("no limit")
                continue
            limits[axis.key] = 10.0 ** float(value) if axis.log else float(value)
            words.append(f"≤ {text(axis, limits[axis.key])}")
        return [limits, *words, parts.remain_line(found, limits)]


def _linked(link: dict[str, Any], name: str, axis: Axis) -> float | None:
    """The place on its slider of a limit that the page's address holds."""
    try:
        value = float(link.get(name, ""))
        return math.log10(value) if axis.log else value
    except (TypeError, ValueError):
        return None  # no number: anybody can write an address


def _beside(app: Dash, source: Source) -> None:
    """Another sweep, to be drawn beside this one."""

    @app.callback(Output("beside", "options"), Input("version", "data"))
    def sweeps(_: str | None) -> list[str]:
        return others(source)

    @app.callback(Output("sweeps", "children"), Input("version", "data"), Input("beside", "value"))
    def compare(_: str | None, name: str | None) -> Any:
        other = beside(source, name)
        return "" if other is None else two_sweeps(source.read()[1], other)


def _scatters(app: Dash, source: Source) -> None:
    """The chart that the page opens with, and the one whose axes are chosen."""

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
        across, up, shade = (_axis(found, key) for key in (x, y, colour))
        narrow, other = bool(shown["narrow"]), beside(source, name)
        return scatter(found, shown["limits"], across, up, shade, theme, narrow=narrow, beside=other)

    @app.callback(output=[Output("first", "figure"), Output("empty", "children")], inputs={"shown": shown})
    def draw_first(shown: dict[str, Any]) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        empty = "" if source.read()[1].candidates else "No trial is complete yet; points appear here as they end."
        return drawn("epsilon", "ser", leakage_of(source.sweep.recipe), **shown), empty

    @app.callback(
        output=[Output("scatter", "figure"), Output("hint", "children")],
        inputs={"shown": shown} | {name: Input(name, "value") for name in ("x", "y", "colour")},
    )
    def draw_scatter(shown: dict[str, Any], x: str, y: str, colour: str) -> Any:
        if shown["theme"] is None:
            return (no_update,) * 2
        found = source.read()[1]
        where = parts.hint(_axis(found, x), _axis(found, y)) if found.candidates else ""
        return drawn(x, y, colour, **shown), where


def _parallel(app: Dash, source: Source) -> None:
    """Setting by setting; and, in all charts, what is selected."""

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
        return parallel(found, limits, axes, _axis(found, colour), theme)

    # In the browser: see `scatter`.
    app.clientside_callback(
        ClientsideFunction("edp", "mark"),
        Output("marked", "data"),
        [Input(name, "data") for name in ("selected", "pinned", "theme")],
        [Input(name, "figure") for name in ("first", "scatter", "parallel")],
    )


def _table(app: Dash, source: Source) -> None:
    # In the browser: a table made anew before the server answered would drop its answer.
    app.clientside_callback(
        ClientsideFunction("edp", "sort"),
        Output("sort", "data"),
        Input({"type": "sort", "key": ALL}, "n_clicks"),
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
        Output("rows", "children"),
        Output("table-where", "children"),
        Output("previous", "disabled"),
        Output("next", "disabled"),
        Input("version", "data"),
        Input("limits", "data"),
        Input("selected", "data"),
        Input("sort", "data"),
        Input("dominated", "value"),
        Input("table-page", "data"),
    )
    def rows(
        _: str | None, limits: Limits, selected: str | None, sort: dict[str, Any], dominated: list[str], number: int
    ) -> Any:
        found = source.read()[1]
        members = parts.table_members(found, limits, bool(dominated), sort["key"], sort["descending"])
        number = min(number, max(0, (len(members) - 1) // parts.ROWS))
        first = number * parts.ROWS
        shown = members[first : first + parts.ROWS]
        where = f"{first + 1}–{first + len(shown)} of {len(members)}" if members else "none"
        more = first + len(shown) < len(members)
        return parts.table(found, shown, selected, sort["key"], sort["descending"]), where, number == 0, not more
