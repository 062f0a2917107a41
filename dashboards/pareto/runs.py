"""Charts of the trials as they ran: when each of them did, their curves over each other, and what new seeds attain."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from dash import Dash, Input, Output, no_update
from optuna.trial import FrozenTrial

from dashboards.pareto.data import CURVES, Axis, Snapshot
from dashboards.pareto.source import Source
from dashboards.pareto.style import SCALES, THEMES, Figure, axis_style, base_layout, blank
from sweeps.config.parts import metric_of, objective_values
from sweeps.results.confirmed import DECIDE, confirmed_runs
from sweeps.results.front import epsilon_varies
from sweeps.store.records import REPEATED, number_of
from sweeps.store.sweep import Sweep
from sweeps.text.figures import params_text
from trainables.records.pareto import deciding

_CHARTS = ("timeline", "over", "attainment")
_DRAWN = 60
"""Most curves of one chart."""
_STATES = {"complete": 3, "stopped": 6, "running": 8, "failed": 0, "interrupted": 10}
"""States of trials that took time, and their place in the colour scale."""


def timeline_chart(trials: Sequence[FrozenTrial], found: Snapshot, now: datetime, theme: str) -> Figure:
    """Draw a bar for each trial from its start to its end, those that ran at once below each other."""
    names = {"COMPLETE": "complete", "PRUNED": "stopped", "RUNNING": "running", "FAIL": "failed"}
    ran: list[tuple[FrozenTrial, str, datetime, datetime]] = []
    for trial in trials:
        state = trial.user_attrs.get("state") or names.get(trial.state.name, "")
        if trial.datetime_start is not None and state in _STATES:
            ran.append((trial, state, trial.datetime_start, trial.datetime_complete or now))
    ran.sort(key=lambda one: one[2])
    if not ran:
        return blank(theme)
    lanes, ends = [], list[datetime]()
    for _, _, start, end in ran:
        lane = next((i for i, free in enumerate(ends) if free <= start), len(ends))
        ends[lane : lane + 1] = [end]
        lanes.append(lane)
    traces: list[Figure] = []
    for state, place in _STATES.items():
        mine = [(*one, lane) for one, lane in zip(ran, lanes, strict=True) if one[1] == state]
        if mine:
            traces.append(
                {"type": "bar", "orientation": "h", "name": state, "y": [lane + 1 for *_, lane in mine]}
                | {"base": [start.isoformat(sep=" ") for _, _, start, _, _ in mine], "width": 0.8}
                | {"x": [(end - start) / timedelta(milliseconds=1) for _, _, start, end, _ in mine]}
                | {"text": [_words(trial, found, end - start) for trial, _, start, end, _ in mine]}
                | {"hovertemplate": "%{text}<extra>%{fullData.name}</extra>", "textposition": "none"}
                | {"marker": {"color": SCALES[theme][place], "line": {"color": THEMES[theme]["paper"], "width": 1}}}
            )
    grid = {"gridcolor": THEMES[theme]["grid"], "zeroline": False, "fixedrange": True}
    layout = base_layout(
        theme,
        barmode="overlay",
        xaxis={"type": "date"} | grid,
        yaxis={"title": {"text": "trials at once"}, "dtick": max(1, math.ceil(len(ends) / 8)), "automargin": True}
        | grid,
        margin={"l": 10, "r": 12, "t": 10, "b": 45},
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
    )
    return {"data": traces, "layout": layout}


def _words(trial: FrozenTrial, found: Snapshot, took: timedelta) -> str:
    params = params_text(trial.user_attrs.get("params") or trial.params)
    return f"trial {number_of(trial)}: {took.total_seconds():,.0f} s<br>{params}"


def curves_chart(found: Snapshot, key: str, theme: str) -> Figure:
    """Draw a metric of trials over their epochs, those of the front in colour and at most `_DRAWN` in all."""
    front = {candidate.point.trial for candidate in found.front}
    order = sorted(found.curves, key=lambda trial: (trial not in front, trial))[:_DRAWN]
    label, log = CURVES[key]
    drawn: list[Figure] = []
    t, values = THEMES[theme], list[float]()
    for trial in reversed(order):  # the front comes last, above the others
        steps = [(i, e[key]) for i, e in enumerate(found.curves[trial], 1) if math.isfinite(e.get(key, math.nan))]
        if steps:
            values += [value for _, value in steps]
            drawn.append(
                {"type": "scatter", "mode": "lines+markers" if len(steps) == 1 else "lines", "showlegend": False}
                | {"x": [i for i, _ in steps], "y": [value for _, value in steps], "name": f"trial {trial}"}
                | {"line": {"color": t["accent" if trial in front else "muted"], "width": 2 if trial in front else 1}}
                | {"opacity": 1 if trial in front else 0.6, "hovertemplate": "%{fullData.name}, epoch %{x}: %{y:.3~g}"}
            )
    if not drawn:
        return blank(theme)
    axis = Axis(key, label, percent=key.endswith("ser"), log=log)
    return {
        "data": drawn,
        "layout": base_layout(
            theme,
            xaxis={"title": {"text": "epoch"}, "gridcolor": t["grid"], "zeroline": False, "fixedrange": True}
            | {"dtick": max(1, math.ceil(max(map(len, found.curves.values())) / 8))},
            yaxis=axis_style(axis, theme, values, fixedrange=True),
            margin={"l": 10, "r": 12, "t": 10, "b": 45},
        ),
    }


Seeds = list[list[tuple[float, float]]]
"""Of each new seed the points that were trained with it: two objectives of each."""


def seeds_of(sweep: Sweep, found: Snapshot) -> tuple[str, str, Seeds]:
    """Return two objectives that differ, and their values for each new seed of the points that `confirm` trained.

    Points with fewer than `DECIDE` seeds are left out, and seeds that not all others have.
    """
    points = [candidate.point for candidate in found.candidates.values()]
    names = [name for name in found.recipe.search.objectives if "epsilon" not in name or epsilon_varies(points)][:2]
    runs = (
        [[deciding(run.metrics) for run in confirmed_runs(sweep, point)] for point in points] if len(names) == 2 else []
    )
    runs = [trainings for trainings in runs if len(trainings) >= DECIDE]
    if not runs:
        return "", "", []
    seeds = min(map(len, runs))
    values = [[objective_values(tuple(names), trainings[i]) for trainings in runs] for i in range(seeds)]
    first, second = (metric_of(name) for name in names)
    log = [name.startswith("log10_") for name in names]
    return first, second, [[(_plain(a, log[0]), _plain(b, log[1])) for a, b in one] for one in values]


def _plain(value: float, log: bool) -> float:
    return 10**value if log else value


def attained(seeds: Seeds) -> Mapping[str, list[tuple[float, float]]]:
    """Return what the front of the best seed, of half of the seeds and of all of them attains, as steps.

    A seed attains (x, y) if one of its points has at most x and at most y (the attainment surfaces of Fonseca and
    Fleming 1996).
    """
    places = sorted({x for one in seeds for x, _ in one if math.isfinite(x)})
    lowest = np.array([[min((y for a, y in one if a <= x), default=math.inf) for x in places] for one in seeds])
    ordered = np.sort(lowest, axis=0) if places else lowest
    ranks = {"one seed": 0, "half of the seeds": (len(seeds) - 1) // 2, "all seeds": len(seeds) - 1}
    return {
        name: [(x, float(y)) for x, y in zip(places, ordered[rank], strict=True) if math.isfinite(y)]
        for name, rank in ranks.items()
    }


def attainment_chart(found: Snapshot, first: str, second: str, seeds: Seeds, theme: str) -> Figure:
    """Draw the attainment surfaces of the new seeds."""
    if not seeds:
        return blank(theme)
    across, up = found.axis(found.chosen_by(second)), found.axis(found.chosen_by(first))
    surfaces = attained([[(b, a) for a, b in one] for one in seeds])
    dashes = dict(zip(surfaces, ("dot", "solid", "dash"), strict=True))
    traces = [
        {"type": "scatter", "mode": "lines", "name": name, "x": [x for x, _ in steps], "y": [y for _, y in steps]}
        | {"line": {"shape": "hv", "dash": dashes[name], "width": 2, "color": THEMES[theme]["accent"]}}
        for name, steps in surfaces.items()
    ]
    xs, ys = ([step[i] for steps in surfaces.values() for step in steps] for i in (0, 1))
    return {
        "data": traces,
        "layout": base_layout(
            theme,
            xaxis=axis_style(across, theme, xs, fixedrange=True),
            yaxis=axis_style(up, theme, ys, fixedrange=True),
            margin={"l": 10, "r": 12, "t": 10, "b": 50},
            legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        ),
    }


def runs(app: Dash, source: Source) -> None:
    """Register the callback. It reads the study when the card is opened, and again when the sweep has changed."""

    @functools.lru_cache(maxsize=2)
    def told(version: str) -> tuple[list[FrozenTrial], tuple[str, str, Seeds]]:
        kept = [trial for trial in source.sweep.told() if trial.user_attrs.get("state") != REPEATED]
        return kept, seeds_of(source.sweep, source.read()[1])

    @app.callback(
        *(Output(name, "figure") for name in _CHARTS),
        *(Output(f"{name}-part", "hidden") for name in _CHARTS),
        Output("over-note", "children"),
        Input("runs-open", "n_clicks"),
        Input("version", "data"),
        Input("metric", "value"),
        Input("theme", "data"),
        prevent_initial_call=True,
    )
    def show(clicks: int | None, _: str | None, metric: str | None, theme: str | None) -> Any:
        if not clicks or theme is None or metric is None:
            return (no_update,) * 7
        version, found = source.read()
        trials, (first, second, seeds) = told(version)
        drawn = [
            timeline_chart(trials, found, datetime.now(), theme),
            curves_chart(found, metric, theme),
            attainment_chart(found, first, second, seeds, theme),
        ]
        most = f" {_DRAWN} of {len(found.curves)} trials are drawn." if len(found.curves) > _DRAWN else ""
        return *drawn, not drawn[0]["data"], False, not seeds, f"In colour: the front.{most}"
