"""The callbacks of the sliders and of the recommendation within their limits."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, no_update

from dashboards.pareto import parts
from dashboards.pareto.data import Limits, PageData, bounds, cost_key, limit_at
from dashboards.pareto.layout import LIMITS
from dashboards.pareto.source import Source
from sweeps.text.figures import Figure


def state(app: Dash, source: Source) -> None:
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
        advice = found.advice(limits)
        if advice.point is None:
            head, _, why = advice.why.partition(": ")
            return head, f"{why[0].upper()}{why[1:]}", True, None
        name = advice.point.name
        if found.release is not None and not limits:
            return f"The released model: settings of {found.candidates[name].name}", parts.released(found), False, name
        why = f"{advice.why} It is {found.choice()}."
        return f"Recommended: {found.candidates[name].name}", why, False, name


def limits(app: Dash, source: Source) -> None:
    """Register the callbacks of the sliders, whose ranges grow with the sweep."""
    names = LIMITS

    @app.callback(
        [Output(f"limit-{name}", prop) for name in names for prop in ("min", "max", "step", "value")],
        [Output({"type": "limit-name", "key": name}, "children") for name in names],
        [Output({"type": "limit-card", "key": name}, "hidden") for name in names],
        Input("version", "data"),
        Input("reset", "n_clicks"),
        [State(f"limit-{name}", prop) for name in names for prop in ("max", "value")],
    )
    def ranges(_: str | None, __: int | None, *before: Any) -> list[Any]:
        found = source.read()[1]
        settings: list[Any] = []
        labels: list[str] = []
        missing: list[bool] = []
        for i, name in enumerate(names):
            axis = _limit_axis(found, name)
            low, high, step = source.computed(_bounds, axis)
            end, value = before[2 * i], before[2 * i + 1]
            # A slider at its end sets no limit, and still sets none when the range grows.
            free = ctx.triggered_id == "reset" or None in (value, end) or float(value) >= float(end)
            settings += [low, high, step, high if free else max(low, min(high, float(value)))]
            labels.append(axis.name)
            missing.append(bool(found.axes) and axis.key not in found.axes)
        return settings + labels + missing

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
        for name, value in zip(names, values, strict=True):
            axis = _limit_axis(found, name)
            high = source.computed(_bounds, axis)[1]
            if value is None or float(value) >= high or axis.key not in found.axes:
                words.append("no limit")
                continue
            within[axis.key] = limit_at(axis, float(value))
            words.append(f"≤ {axis.text(within[axis.key])}")
        return [within, *words, parts.remain_line(found, within)]


def _limit_axis(snapshot: PageData, name: str) -> Figure:
    return snapshot.axis(cost_key(snapshot.axes) if name == "cost" else snapshot.chosen_by(name))


def _bounds(snapshot: PageData, axis: Figure) -> tuple[float, float, float]:
    return bounds(axis, list(snapshot.candidates.values()))
