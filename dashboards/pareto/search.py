"""Charts of the search: the importance of settings, SER by setting, and the hypervolume over trials."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from dash import Dash, Input, Output, no_update
from optuna.trial import FrozenTrial, TrialState

from dashboards.pareto.data import Axis, Candidate, Snapshot, is_number, text
from dashboards.pareto.source import Source
from dashboards.pareto.style import SCALES, THEMES, Figure, axis_style, base_layout, blank, decades
from dashboards.pareto.view import scaled
from sweeps.config.parts import Objective, metric_of

_FEWEST = 4
"""The smallest number of complete trials for which importances are computed."""


def complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the trials that have values."""
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


def importances(trials: Sequence[FrozenTrial], objectives: Sequence[Objective]) -> dict[str, dict[str, float]]:
    """Return each setting's importance by objective, which sum to 1 (Optuna's PED-ANOVA); {} for too few trials."""
    study = optuna.create_study(directions=["minimize"] * len(objectives))  # in memory: the sweep's own stays as it is
    study.add_trials(complete(trials))
    if len(study.trials) < _FEWEST:
        return {}
    found: dict[str, dict[str, float]] = {}
    for i, name in enumerate(objectives):

        def value(trial: FrozenTrial, i: int = i) -> float:
            return trial.values[i]

        try:
            found[name] = optuna.importance.get_param_importances(study, target=value)
        except (ValueError, RuntimeError):
            continue  # all trials have one value, such as a fixed ε
    return found


def hypervolumes(trials: Sequence[FrozenTrial], objectives: Sequence[Objective]) -> list[float]:
    """Return the share of the final hypervolume after each complete trial.

    The reference point is the worst value of each objective.
    """
    values = np.array([trial.values for trial in complete(trials)])
    if len(values) < 2:
        return []
    # An infinite ε counts as the worst finite one. An objective whose values are all infinite is left out.
    values = values[:, np.isfinite(values).any(axis=0)]
    worst = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    values = np.minimum(values, worst)
    if values.shape[1] == 0:
        return []
    if values.shape[1] == 1:
        span = values[0, 0] - values.min()
        best = np.minimum.accumulate(values[:, 0])
        return [float(v) for v in ((values[0, 0] - best) / span if span else np.ones(len(values)))]
    study = optuna.create_study(directions=["minimize"] * values.shape[1])
    study.add_trials([optuna.create_trial(values=row) for row in values.tolist()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        drawn = optuna.visualization.plot_hypervolume_history(study, worst.tolist())
    volumes = [float(v) for v in drawn.data[0].y]
    return [v / volumes[-1] for v in volumes] if volumes and volumes[-1] else []


def importance_chart(found: dict[str, dict[str, float]], theme: str) -> Figure:
    """Draw the importances as bars, one per objective."""
    if not found:
        return blank(theme)
    names = sorted(
        {n for shares in found.values() for n in shares}, key=lambda n: max(f.get(n, 0) for f in found.values())
    )
    tints = [SCALES[theme][i] for i in (2, 6, 9, 0, 4)]
    bars = [
        {"type": "bar", "orientation": "h", "name": objective.replace("log10_", ""), "y": names}
        | {"x": [shares.get(n, 0.0) for n in names], "marker": {"color": tint, "pattern": {"shape": shape}}}
        | {"hovertemplate": "%{y}: %{x:.0%}<extra>%{fullData.name}</extra>"}
        for (objective, shares), tint, shape in zip(found.items(), tints, ("", "/", ".", "x", "-"), strict=False)
    ]
    return {
        "data": bars,
        "layout": base_layout(
            theme,
            xaxis={"tickformat": ".3~p", "gridcolor": THEMES[theme]["grid"], "fixedrange": True}
            | {"title": {"text": "importance for being among the best trials (Optuna, PED-ANOVA)"}},
            yaxis={"automargin": True, "fixedrange": True},
            margin={"l": 10, "r": 12, "t": 10, "b": 45},
            legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        ),
    }


def slices_chart(snapshot: Snapshot, objective: Axis, theme: str) -> Figure:
    """Draw the objective of every trial's last epoch against each searched setting."""
    settings = [
        axis for axis in snapshot.axes.values() if any(axis.key in c.params for c in snapshot.candidates.values())
    ]
    members = [c for c in snapshot.candidates.values() if c.point.last and is_number(c.value(objective.key))]
    if not settings or not members:
        return blank(theme)
    layout = base_layout(theme, showlegend=False, margin={"l": 10, "r": 12, "t": 10, "b": 45})
    objective = scaled(objective, members)
    values = [float(c.value(objective.key)) for c in members]
    layout["yaxis"] = axis_style(objective, theme, values, fixedrange=True)
    traces: list[Figure] = []
    for i, axis in enumerate(settings):
        n = "" if i == 0 else str(i + 1)
        here = [c for c in members if axis.key in c.params]
        traces.append(_slice(here, axis, objective, theme) | {"xaxis": f"x{n}", "yaxis": "y"})
        words = any(not is_number(c.params[axis.key]) for c in here)
        style = axis_style(axis, theme, [float(c.params[axis.key]) for c in here if is_number(c.params[axis.key])])
        layout[f"xaxis{n}"] = (style if not words else {"type": "category", "title": {"text": axis.short}}) | {
            "domain": [(i + 0.04) / len(settings), (i + 0.96) / len(settings)],
            "anchor": "y",
            "fixedrange": True,
            "nticks": 4,
            "tickangle": 0,
            "dtick": decades([c.params[axis.key] for c in here], 2) if axis.log and not words else None,
        }
    return {"data": traces, "layout": layout}


def _slice(members: list[Candidate], axis: Axis, objective: Axis, theme: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [c.params[axis.key] if is_number(c.params[axis.key]) else str(c.params[axis.key]) for c in members],
        "y": [c.value(objective.key) for c in members],
        "text": [f"{c.name}: {text(objective, c.value(objective.key))}" for c in members],
        "hovertemplate": "%{text}<br>%{x}<extra></extra>",
        "marker": {
            "symbol": ["diamond" if c.on_front else "circle-open" for c in members],
            "size": 6,
            "color": [THEMES[theme]["accent"] if c.on_front else THEMES[theme]["muted"] for c in members],
        },
    }


def progress_chart(shares: list[float], objectives: Sequence[str], theme: str) -> Figure:
    """Draw the hypervolume over trials."""
    if not shares:
        return blank(theme)
    what = "hypervolume" if len(objectives) > 1 else f"gain in {objectives[0]}"
    t = THEMES[theme]
    return {
        "data": [
            {"type": "scatter", "mode": "lines", "x": list(range(1, len(shares) + 1)), "y": shares}
            | {
                "line": {"color": t["accent"], "width": 2, "shape": "hv"},
                "hovertemplate": f"trial %{{x}}: %{{y:.1%}} of the final {what}<extra></extra>",
            }
        ],
        "layout": base_layout(
            theme,
            xaxis={"title": {"text": "complete trials"}, "gridcolor": t["grid"], "zeroline": False, "fixedrange": True},
            yaxis={"tickformat": ".3~p", "gridcolor": t["grid"], "title": {"text": "of the final"}}
            | {"zeroline": False, "fixedrange": True, "automargin": True, "rangemode": "tozero"},
            margin={"l": 10, "r": 12, "t": 10, "b": 45},
        ),
    }


def search(app: Dash, source: Source) -> None:
    """Register the callbacks. They compute when the card is opened, and again when the sweep has grown."""

    @functools.lru_cache(maxsize=2)
    def learned(version: str) -> tuple[dict[str, dict[str, float]], list[float], int]:
        recipe = source.sweep.recipe
        trials = source.sweep.told()
        objectives = recipe.search.objectives
        return importances(trials, objectives), hypervolumes(trials, objectives), len(complete(trials))

    @app.callback(Output("slice", "options"), Input("version", "data"))
    def objectives(_: str | None) -> list[dict[str, str]]:
        found = source.read()[1]
        objectives = (metric_of(objective) for objective in found.recipe.search.objectives)
        names = dict.fromkeys(map(found.chosen_by, ("ser", "mia_auc", *objectives)))
        return [{"label": found.axes[key].short, "value": key} for key in names if key in found.axes]

    @app.callback(
        Output("importance", "figure"),
        Output("slices", "figure"),
        Output("progress", "figure"),
        Output("search-note", "children"),
        [Output(f"{name}-part", "hidden") for name in ("importance", "slices", "progress")],
        Input("search-open", "n_clicks"),
        Input("version", "data"),
        Input("slice", "value"),
        Input("theme", "data"),
        running=[(Output("search-busy", "children"), "Computing …", "")],
        prevent_initial_call=True,
    )
    def show(clicks: int | None, _: str | None, objective: str, theme: str | None) -> Any:
        if not clicks or theme is None:
            return (no_update,) * 7
        version, found = source.read()
        shares, volumes, n = learned(version)
        note = f"From {n} complete trials." + (f" Importances need {_FEWEST} or more." if n < _FEWEST else "")
        axis = found.axes.get(objective, Axis(objective, objective))
        names = found.recipe.search.objectives
        drawn = (
            importance_chart(shares, theme),
            slices_chart(found, axis, theme),
            progress_chart(volumes, names, theme),
        )
        return *drawn, note, *(not figure["data"] for figure in drawn)
