"""The callbacks that select, compare and pick a candidate."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, html, no_update

from dashboards.pareto import parts
from dashboards.pareto.data import Limits
from dashboards.pareto.source import Source
from edp.spec import UserError
from sweeps.registry.pick import Wanted, is_pick, keep, objection
from sweeps.results.headline import released_in_place_of
from sweeps.results.snapshot import Snapshot
from sweeps.store.storage import train_line
from sweeps.store.sweep import Sweep
from sweeps.text.figures import enumerated

_PINNED = 4
"""Most configurations that another one is compared with."""


def selection(app: Dash, source: Source, mlflow: str | None, tracking_uri: str | None) -> None:
    """Register the callbacks that select a candidate by click and show its details."""
    app.clientside_callback(
        ClientsideFunction("edp", "select"),
        Output("selected", "data"),
        Input("first", "clickData"),
        Input("scatter", "clickData"),
        Input("pressed-row", "data"),
        Input("best", "n_clicks"),
        State("advice", "data"),
        prevent_initial_call=True,
    )

    # The page opens on the recommendation and follows it until the user selects a point.
    @app.callback(
        Output("selected", "data", allow_duplicate=True),
        Output("advised", "data"),
        Input("version", "data"),
        State("selected", "data"),
        State("advised", "data"),
        prevent_initial_call="initial_duplicate",
    )
    def follow(_: str | None, selected: str | None, before: str | None) -> Any:
        first = source.read()[1].first
        now = first.key if first else None
        return (now if selected in (None, before) and selected != now else no_update), now

    @app.callback(
        Output("chosen", "children"),
        Output("details-tree", "data"),
        Output("pick", "disabled"),
        Input("selected", "data"),
        Input("version", "data"),
        Input("limits", "data"),
    )
    def show(selected: str | None, _: str | None, limits: Limits) -> Any:
        found = source.read()[1]
        candidate = found.candidates.get(selected or "")
        if candidate is None:
            hint = "Choose a point in a chart or a row of the table to see its settings, figures and guarantee here."
            hint = hint if found.first else f"{found.recommended().why} {hint}"
            return "Nothing selected", hint, True
        url = source.run_page(mlflow, candidate.point.run_id, tracking_uri) if mlflow else None
        return candidate.name, parts.details(found, candidate, url, limits), False


def comparing(app: Dash, source: Source) -> None:
    """Register the callbacks that compare configurations: some are pinned while another is selected."""

    @app.callback(
        Output("pinned", "data"),
        Input("pin", "n_clicks"),
        Input("unpin", "n_clicks"),
        State("selected", "data"),
        State("pinned", "data"),
        prevent_initial_call=True,
    )
    def pin(_: int | None, __: int | None, selected: str | None, now: list[str] | None) -> Any:
        return [] if ctx.triggered_id == "unpin" else [*dict.fromkeys([*(now or []), selected])][:_PINNED]

    @app.callback(
        Output("side-by-side", "children"),
        Output("pin", "disabled"),
        Output("unpin", "hidden"),
        Input("pinned", "data"),
        Input("selected", "data"),
        Input("version", "data"),
    )
    def show(pinned: list[str] | None, selected: str | None, _: str | None) -> Any:
        found = source.read()[1]
        one = found.candidates.get(selected or "")
        kept = [found.candidates[name] for name in pinned or [] if name in found.candidates]
        others = [candidate for candidate in kept if candidate is not one]
        full = one is None or one in kept or len(kept) == _PINNED
        if one is None or not others:
            names = enumerated([candidate.name for candidate in kept])
            words = f"{names} {'is' if len(kept) == 1 else 'are'} kept for comparison: select another one."
            return html.P(words) if kept else "", full, not kept
        return parts.side_by_side(found, one, others), full, False


def picking(app: Dash, source: Source, output: Path, tracking_uri: str | None) -> None:
    """Register the callback of Pick, which writes the file and, given a name, registers the model.

    A model that `objection` speaks against is registered at the second click; the first click shows why.
    """

    @app.callback(
        Output("pick-where", "children"),
        Output("excluded", "children"),
        Input("selected", "data"),
        Input("limits", "data"),
        Input("version", "data"),
        Input("picked", "children"),
    )
    def where(selected: str | None, limits: Limits, _: str | None, __: Any) -> Any:
        found, file = source.read()[1], free_file(source.sweep, output)
        there = "" if file == output else f", since {output.name} is there already and no pick of this sweep"
        candidate = found.candidates.get(selected or "")
        excluded = parts.outside_line(found, candidate, limits) if candidate else ""
        return ["writes ", html.Code(str(file)), there], excluded

    @app.callback(
        Output("picked", "children"),
        Output("asked", "data"),
        Input("pick", "n_clicks"),
        Input("selected", "data"),
        State("model-name", "value"),
        State("asked", "data"),
        State("limits", "data"),
        running=[(Output("pick", "children"), "Picking …", "Pick")],
        prevent_initial_call=True,
    )
    def pick(clicks: int | None, selected: str | None, model_name: str | None, asked: Any, limits: Limits) -> Any:
        if ctx.triggered_id != "pick" or not clicks or selected is None:
            return "", None
        if (candidate := source.read()[1].candidates.get(selected)) is None:
            return f"{selected} is no configuration of this sweep any more.", None
        name, found = (model_name or "").strip(), Snapshot(source.sweep)
        point = released_in_place_of(found, candidate.point)
        question, against = [selected, name], objection(found, point)
        try:
            file = free_file(source.sweep, output)
            again = is_pick(source.sweep, file)  # overwriting an earlier pick loses nothing: it can be repeated
            wanted = Wanted(file, name or None, force=again, tracking_uri=tracking_uri)
            if name and against and asked != question:
                return f"{against[0].upper()}{against[1:]}. Pick again to register it nevertheless.", question
            model = keep(found, point, "A person chose it on the page.", wanted, limits)
        except UserError as error:
            return str(error), None
        words = f"Picked trial {point.trial} after epoch {point.epoch}: wrote {file}."
        sweep = source.sweep
        storage, uri = sweep.folder.parent, tracking_uri or sweep.record.tracking_uri
        go_on = f" Train it with: {train_line(file.name, storage=storage, tracking_uri=uri)}"
        if point != candidate.point:
            go_on = " Its model is released already."
        return words + (f" Registered as {model.uri}." if model else "") + go_on, None


def free_file(sweep: Sweep, output: Path) -> Path:
    """Return the file that Pick writes: `output`, or with a number if that is there and no pick of this sweep."""
    names = itertools.chain([output], (output.with_stem(f"{output.stem}-{n}") for n in itertools.count(2)))
    return next(file for file in names if not file.exists() or is_pick(sweep, file))
