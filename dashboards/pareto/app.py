"""The Pareto page: a Dash app for one sweep, and its candidates as a CSV file.

Dash was chosen because Plotly draws the project's other figures, its callbacks are Python without a build step, and it
serves all of its JavaScript itself, so the page works without a network.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, ctx
from flask import Response

from dashboards.pareto import parts
from dashboards.pareto.charts import charts
from dashboards.pareto.data import Limits, PageData, opening_axes
from dashboards.pareto.guard import guard
from dashboards.pareto.layout import INDEX, page
from dashboards.pareto.limits import limits, state
from dashboards.pareto.selection import address, comparing, notes, picking, selection
from dashboards.pareto.source import Source

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
        mlflow: address of the MLflow UI; None if there is none.
        optuna: address of Optuna's dashboard; None if there is none.
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
    token = secrets.token_urlsafe(32)
    app.layout = page(source.sweep.name, output, links, seconds, opening_axes(source.read()[1]), token)
    _theme(app)
    state(app, source)
    limits(app, source)
    charts(app, source)
    _trees(app)
    _table(app, source)
    selection(app, source, mlflow, tracking_uri)
    address(app, source)
    comparing(app, source)
    notes(app, source, token)
    _download(app, source)
    picking(app, source, output, tracking_uri, token)
    guard(app)
    return app


def _theme(app: Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("edp", "theme"),
        Output("theme", "data"),
        Output("toggle", "children"),
        Output("narrow", "data"),
        Input("toggle", "n_clicks"),
    )


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


def candidates_csv(snapshot: PageData) -> str:
    """Return a CSV row per candidate: its name, place, settings (named as in `--set`: `edp.C`) and metrics."""
    advised = snapshot.advice().point
    rows = [
        {
            "point": c.key,
            "trial": c.point.trial,
            "epoch": c.point.epoch,
            "pareto": c.on_front,
            "recommended": advised is not None and c.key == advised.name,
            "tied_with": " ".join(c.tied_with),
            "run_id": c.point.run_id,
            **{name if "." in name else f"edp.{name}": value for name, value in c.params.items()},
            **c.metrics,
        }
        for c in snapshot.candidates.values()
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def _download(app: Dash, source: Source) -> None:
    """Serve the table at its own address, since the page's content policy lets no script create a file."""

    def csv() -> Response:
        name = f"{source.sweep.name}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Type": "text/csv; charset=utf-8"}
        return Response(candidates_csv(source.read()[1]), headers=headers)

    app.server.add_url_rule("/candidates.csv", "candidates", csv)
