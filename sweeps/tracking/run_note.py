"""The description of a sweep in MLflow: the Markdown of its parent run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from sweeps.formatting.figures import MARK, audited_text, epsilon_cell, params_text, user_cell
from sweeps.formatting.leakage import tpr_text
from sweeps.formatting.shell import command_line
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.space import SHAPE
from sweeps.results.summary import TPR, about_users
from sweeps.results.total import cost_line
from sweeps.state.records import Point, TrialRecord
from sweeps.state.storage import train_line
from sweeps.state.sweep import Sweep

_ROWS = 20
"""Rows of the front: MLflow takes 8,000 characters."""


def first_note(sweep: Sweep, recipe: Recipe) -> str:
    """Return the Markdown for the parent run's page until the sweep ends."""
    storage = sweep.folder.parent
    return "\n\n".join(
        [
            f"**{recipe.description or sweep.name}**",
            f"{_searched(recipe)} How far it is: `{command_line('status', sweep.name, storage=storage)}`.",
        ]
    )


def _searched(recipe: Recipe) -> str:
    training = recipe.training
    searched = any(key in recipe.space for key in SHAPE)
    one = "a user" if recipe.edp.unit == "user" else "an utterance"
    clips = f"one clip {one}" if training.clips is None else f"{training.clips} micro-batches a step"
    return (
        f"**Searched:** {', '.join(f'`{key}`' for key in recipe.dimensions)} for "
        f"{', '.join(f'`{key}`' for key in recipe.search.objectives)}, with {recipe.model.kind.upper()} on "
        f"{recipe.corpus.name}, {training.epochs} epochs{'' if searched else ', ' + clips}."
    )


def run_note(sweep: Sweep, recipe: Recipe, trials: list[TrialRecord], front: list[Point], experiment: str) -> str:
    """Return the Markdown for the parent run's page; `experiment` is the id of its experiment.

    MLflow shows the first lines; a click shows the rest.
    """
    name = sweep.name
    models = sum(len(trial.points) for trial in trials)
    every, best = _runs(experiment, name, "all trials", ""), _runs(experiment, name, "the front", "pareto")
    picked = _runs(experiment, name, "what was picked", "picked")
    users = any("epsilon_user" in point.metrics for point in front)
    shown, rare = _spread_over(front, _ROWS), TPR in recipe.search.objectives
    more = f"{len(shown)} of the front's {len(front)}; all of them: `{sweep.command('front')}`. "
    train = train_line("picked.yaml", storage=sweep.folder.parent, tracking_uri=sweep.record.tracking_uri)
    lines = [
        *([f"**{recipe.description}**", ""] if recipe.description else []),
        f"**{len(front)} of {models} models are Pareto-optimal.** Look at {best}, {every} or {picked} (the chart view "
        f"compares them), or at `{sweep.command('ui')}`, the page to look and pick.",
        "",
        f"| trial | SER | MIA AUC |{' MIA TPR at FPR ≤ 1 % |' if rare else ''} ε (honest) | "
        f"{'ε (of a user) | ' if users else ''}ε (paper) | ε (audited) | configuration |",
        f"|---|---|---|{'---|' * (rare + users)}---|---|---|---|",
        *([_row("SGD", sweep.record.baseline, "plain SGD", rare, users)] if sweep.record.baseline else []),
        *(_row(point.name, point.metrics, params_text(point.params), rare, users) for point in shown),
        "",
        (more if len(shown) < len(front) else "")
        + f"`2@3`: trial 2 after epoch 3. {MARK}: ε of 1e4 or more is no formal guarantee. "
        f"{cost_line(sweep, trials)}.{about_users(front)}",
        "",
        _searched(recipe),
        "",
        "**Here:** curves over the epochs are under *Model metrics* of a trial, the front as a picture under "
        "*Artifacts* (`front.svg`); `log10_epsilon` is for charts.",
        "",
        f"**Go on:** `{sweep.command('pick')}`, `{train}`, `{sweep.command('confirm', '--seeds', '3')}`, "
        f"`{sweep.command('resume')}`.",
    ]
    return "\n".join(lines)


def _row(name: str, metrics: Mapping[str, Any], configuration: str, rare: bool, users: bool) -> str:
    cells = (
        name,
        f"{metrics['ser']:.2%}",
        f"{metrics['mia_auc']:.3f}",
        *([_tpr(metrics)] if rare else []),
        epsilon_cell(metrics["epsilon"]),
        *([user_cell(metrics) or "–"] if users else []),
        epsilon_cell(metrics["epsilon_paper"]),
        audited_text(metrics) or "–",
        configuration,
    )
    return f"| {' | '.join(cells)} |"


def _tpr(metrics: Mapping[str, Any]) -> str:
    return tpr_text(metrics[TPR], metrics.get("mia_realised_1pct_fpr")) if TPR in metrics else "–"


def _runs(experiment: str, sweep: str, words: str, tag: str) -> str:
    """Return a link to a sorted list of trials in the MLflow UI, which hides unsorted ones below the sweep."""
    wanted = f"tags.sweep = '{sweep}' and tags.role = 'trial'" + (f" and tags.{tag} = 'true'" if tag else "")
    query = {
        "workflowType": "machine_learning",
        "searchFilter": wanted,
        "orderByKey": "metrics.`ser`",
        "orderByAsc": "true",
    }
    return f"[{words}](#/experiments/{experiment}/runs?{urlencode(query, quote_via=quote)})"


def _spread_over(front: list[Point], most: int) -> list[Point]:
    """Return at most `most` points, spread from the first to the last."""
    if len(front) <= most:
        return front
    return [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]
