"""Choosing a candidate, and picking it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, no_update
from flask import abort

from dashboards.pareto import detail, parts
from dashboards.pareto.data import Limits, Source, within
from dashboards.pareto.guard import same
from dashboards.pareto.style import blank
from edp.spec import UserError
from sweeps.commands.pick import Wanted, is_pick, keep
from sweeps.results.choice import choose
from sweeps.state.shell import train_line


def selection(app: Dash, source: Source, mlflow: str | None, tracking_uri: str | None) -> None:
    """Clicks select a candidate, and what is known of it is shown."""
    # In the browser, for the reason that sorting is.
    app.clientside_callback(
        ClientsideFunction("edp", "select"),
        Output("selected", "data"),
        Input("scatter", "clickData"),
        Input("parallel", "clickData"),
        Input({"type": "row", "key": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("selected", "data", allow_duplicate=True),
        Input("best", "n_clicks"),
        State("limits", "data"),
        prevent_initial_call=True,
    )
    def best(clicks: int | None, limits: Limits) -> Any:
        return (clicks and _best(source, limits)) or no_update

    @app.callback(
        Output("chosen", "children"),
        Output("details", "children"),
        Output("epsilons", "figure"),
        Output("epsilons-note", "children"),
        Output("curves", "figure"),
        Output("charts", "hidden"),
        Output("pick", "disabled"),
        Input("selected", "data"),
        Input("version", "data"),
        Input("theme", "data"),
    )
    def show(selected: str | None, _: str | None, theme: str | None) -> Any:
        if theme is None:
            return (no_update,) * 7
        found = source.read()[1]
        candidate = found.candidates.get(selected or "")
        if candidate is None:
            hint = "Choose a point in a chart or a row of the table: its settings, figures and guarantee come here."
            return "Nothing selected", hint, blank(theme), "", blank(theme), True, True
        url = source.run_page(mlflow, candidate.point.run_id, tracking_uri) if mlflow else None
        audited = "epsilon_audited" in candidate.metrics
        note = "" if audited else "No audit was run, so there is no lower bound. "
        return (
            candidate.name,
            parts.details(found, candidate, url),
            detail.epsilons(candidate, theme),
            note + "Grey: 10,000 or more is no formal guarantee. The paper's figure is no bound for the mechanism "
            "that ran; the README says why.",
            detail.curves(found.curves.get(candidate.trial, ()), candidate.point.epoch, theme),
            False,
            False,
        )


def _best(source: Source, limits: Limits) -> str | None:
    """What `edp-sweep pick` would choose within the limits."""
    found = source.read()[1]
    if not any(within(c, limits) for c in found.front):
        return None
    return choose([c.point for c in found.front], found.recipe.search.objectives, limits).name


def picking(app: Dash, source: Source, output: Path, tracking_uri: str | None, token: str) -> None:
    """Pick writes the file and, under a name, registers the model: for whoever has the page, and so its token."""

    @app.callback(
        Output("picked", "children"),
        Input("pick", "n_clicks"),
        Input("selected", "data"),
        State("model-name", "value"),
        State("token", "data"),
        running=[(Output("pick", "children"), "Picking …", "Pick")],
        prevent_initial_call=True,
    )
    def pick(clicks: int | None, selected: str | None, model_name: str | None, given: Any) -> Any:
        if ctx.triggered_id != "pick" or not clicks or selected is None:
            return ""
        if not same(given, token):
            abort(403)
        point = source.read()[1].candidates[selected].point
        name = (model_name or "").strip()
        try:
            again = is_pick(source.sweep, output)  # it can be picked again, so nothing is lost
            wanted = Wanted(output, name or None, force=again, tracking_uri=tracking_uri)
            model = keep(source.sweep, point, "A person chose it on the page.", wanted)
        except UserError as error:
            return str(error)
        words = f"Picked trial {point.trial} after epoch {point.epoch}: wrote {output}."
        uri = tracking_uri or source.sweep.record.tracking_uri
        go_on = f" Train it with: {train_line(output.name, storage=source.sweep.folder.parent, tracking_uri=uri)}"
        return words + (f" Registered as {model.uri}." if model else "") + go_on
