"""The description of a sweep in MLflow: the Markdown of its parent run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from sweeps.config.recipe import Recipe
from sweeps.config.space import SHAPE
from sweeps.results.front import Candidate
from sweeps.results.headline import headline
from sweeps.results.snapshot import Snapshot
from sweeps.store.storage import train_line
from sweeps.store.sweep import Sweep
from sweeps.text.columns import HOLLOW, HOLLOW_WORDS, SCHEMA_ONLY, TPR, epsilon_legend, model_cells, model_heads
from sweeps.text.figures import params_text, users_notes
from sweeps.text.terminal import command_line

_SORTED = {"orderByKey": "metrics.`valid_ser`"}
PICTURE = "front.png"
"""The artifact of the sweep's run that its note shows. MLflow serves an SVG as a download alone."""
_ROWS = 8
"""The largest number of the front's rows, so that the note and its picture fit one screen."""


def first_note(sweep: Sweep, recipe: Recipe) -> str:
    """Return the Markdown for the parent run's page until the sweep ends."""
    status = command_line("status", sweep.name, storage=sweep.folder.parent)
    return f"**{recipe.description or sweep.name}**\n\n{_searched(recipe)} Its progress: `{status}`."


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


def run_note(found: Snapshot, experiment: str) -> str:
    """Return the Markdown for the parent run's page; `experiment` is the id of its experiment.

    MLflow shows the first lines; a click shows the rest.
    """
    sweep, recipe, front, name = found.sweep, found.recipe, found.front, found.sweep.name
    models = sum(len(trial.points) for trial in found.trials)
    every, best = f"[all trials]({trials_page(experiment, name)})", _runs(experiment, name, "the front", "pareto")
    picked = _runs(experiment, name, "what was picked", "picked")
    shown, rare = _spread_over(front, _ROWS), TPR in recipe.search.objectives
    metrics, released = [one.metrics for one in front], headline(found)
    heads = ["trial", *model_heads(metrics, rare=rare), "configuration"]
    more = f"{len(shown)} of the front's {len(front)}; all of them: `{sweep.command('front')}`. "
    if found.plan is None:
        storage, uri = sweep.folder.parent, found.record.tracking_uri
        train = train_line("picked.yaml", storage=storage, tracking_uri=uri)
        go_on = [sweep.command("pick"), train, sweep.command("confirm", "--seeds", "3")]
    else:  # another training on the private corpus would cost more ε
        go_on = [sweep.command("report"), sweep.command("pick", "--register", "NAME")]
    lines = [
        *([f"**{recipe.description}**", ""] if recipe.description else []),
        *(f"**{line}**" if i == 0 else line for i, line in enumerate(released)),
        *([""] if released else []),
        f"**{len(front)} of {models} models are Pareto-optimal.** Look at {best}, {every} or {picked} (the chart view "
        f"compares them), or at `{sweep.command('ui')}`, the page to look and pick.",
        "",
        *([f"![the front](get-artifact?path={PICTURE}&run_uuid={sweep.record.run_id})", ""] if front else []),
        f"| {' | '.join(heads)} |".replace("\n", " "),
        f"|{'---|' * len(heads)}",
        *([_row(heads, "SGD", found.baseline, "plain SGD")] if found.baseline else []),
        *([_row(heads, "schema", found.schema_only, SCHEMA_ONLY)] if found.schema_only else []),
        *(_row(heads, f"{HOLLOW * c.hollow}{c.key}", c.metrics, params_text(c.params)) for c in shown),
        "",
        (more if len(shown) < len(front) else "")
        + (f"{HOLLOW}: {HOLLOW_WORDS}. " if any(one.hollow for one in front) else "")
        + f"`2@3`: trial 2 after epoch 3. {epsilon_legend()} {found.cost_line}.{users_notes(metrics)}",
        "",
        f"{_searched(recipe)} **Go on:** {', '.join(f'`{words}`' for words in (*go_on, sweep.command('resume')))}.",
    ]
    return "\n".join(lines)


def _row(heads: list[str], name: str, metrics: Mapping[str, Any], configuration: str) -> str:
    cells = {
        "trial": name,
        **model_cells(metrics),
        "configuration": configuration,
    }
    return f"| {' | '.join(cells[head] or '–' for head in heads)} |"


def _runs(experiment: str, sweep: str, words: str, tag: str) -> str:
    """Return a link to a sorted list of trials in the MLflow UI, which hides unsorted ones below the sweep."""
    query = {"workflowType": "machine_learning", "searchFilter": f"{_trials_of(sweep)} and tags.{tag} = 'true'"}
    query |= _SORTED | {"orderByAsc": "true"}
    return f"[{words}](#/experiments/{experiment}/runs?{urlencode(query, quote_via=quote)})"


def trials_page(experiment: str, sweep: str) -> str:
    """Return the address of a sweep's trials in the MLflow UI, with the columns of `trials_view`."""
    query = {"viewStateShareKey": sweep, "workflowType": "machine_learning"}
    return f"#/experiments/{experiment}/runs?{urlencode(query)}"


def trials_view(sweep: str, recipe: Recipe) -> str:
    """Return the view of a sweep's trials that MLflow keeps with its experiment: which runs, by which columns.

    It is what MLflow's own button for sharing a view would write. Its columns are those that a window of 1600 pixels
    has room for: the mechanism's settings are the first dimensions.
    """
    metrics = ("valid_ser", "valid_mia_auc", "epsilon")
    columns = [f"metrics.`{name}`" for name in metrics] + [f"params.`{name}`" for name in [*recipe.dimensions][:5]]
    view = {"searchFilter": _trials_of(sweep), **_SORTED, "orderByAsc": True, "selectedColumns": columns}
    view |= {"startTime": "ALL", "lifecycleFilter": "Active", "datasetsFilter": [], "modelVersionFilter": "All Runs"}
    return json.dumps(view)


def _trials_of(sweep: str) -> str:
    return f"tags.sweep = '{sweep}' and tags.role = 'trial'"


def _spread_over(front: list[Candidate], most: int) -> list[Candidate]:
    """Return at most `most` points, spread from the first to the last."""
    if len(front) <= most:
        return front
    return [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]
