"""`edp-sweep front`: the Pareto-optimal configurations of a sweep, as a table or a JSON document."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from sweeps.commands.console import out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, TrackingUri, named
from sweeps.results.cost import sweep_cost
from sweeps.results.front import tie_lines
from sweeps.results.headline import headline
from sweeps.results.snapshot import Snapshot
from sweeps.text.columns import HOLLOW, HOLLOW_WORDS, SCHEMA_ONLY, TPR, epsilon_legend, model_cells, model_heads
from sweeps.text.figures import (
    deciding_cell,
    labels_field,
    params_text,
    shared_params,
    users_notes,
)
from sweeps.text.terminal import figures_table, fitting, print_line
from trainables.records.pareto import Metrics

SEEDS_HEAD = "new\nseeds"
"""The heading of the means over new seeds of the SER that chooses."""


def front_command(
    name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False
) -> None:
    """Show the Pareto-optimal configurations of a sweep."""
    found = Snapshot(named(storage, name))
    if as_json:
        print_json(front_document(found))
    else:
        print_front(found, out)


def front_document(found: Snapshot) -> dict[str, Any]:
    """Return what `--json` prints.

    `tied_with` is as `sweeps.results.front.ties` defines it, `new_seeds` as `sweeps.results.confirmed.means`, and
    `by_noise_in_mia` is True for the points of `sweeps.results.front.hollow`.
    """
    places = found.candidates
    return {
        "sweep": found.sweep.name,
        "objectives": list(found.recipe.search.objectives),
        "front": [
            point.public()
            | {"tied_with": places[point.name].tied_with, "new_seeds": found.new_seeds(point)}
            | {"by_noise_in_mia": places[point.name].hollow}
            for point in found.pareto
        ],
        "dominated_but_tied": [
            point.public() | {"tied_with": places[point.name].tied_with}
            for point in found.points
            if places[point.name].tied_with and not places[point.name].on_front
        ],
        **found.recommended().document(),
        "cost": sweep_cost(found.trials, found.baseline),
        "baseline": baseline_document(found),
        "schema_only": found.record.schema_only,
        "choice": found.choice(),
        "epsilon_of_sweep": found.epsilon,
        "epsilon_user_of_sweep": found.epsilon_user,
        **labels_field(found.private_corpus),
    }


def baseline_document(found: Snapshot) -> dict[str, Any] | None:
    """Return metrics and run of the SGD baseline, which has no guarantee; None while it is not trained."""
    baseline = found.record.baseline
    return baseline and {**baseline, "formal_guarantee": False}


def print_front(found: Snapshot, console: Console) -> None:
    """Print the front, and the ε of the whole sweep, which includes trials that failed or were stopped.

    Of a sweep that chooses on a proxy corpus, print the released model and its ε.
    """
    if found.pareto:
        again = {point.name: means for point in found.pareto if (means := found.new_seeds(point))}
        # A narrow terminal loses first the intervals but that of the SER that chooses: a figure without its interval
        # misleads. The epsilons stay.
        layouts = ((True, True), (True, False), (False, False))
        console.print(fitting(console, (_table(found, again, interval=i, every=e) for i, e in layouts)))
        for line in tie_lines(found.candidates):
            print_line(console, f"~ {line}")
    else:
        print_line(console, "no complete trial yet, so no front")
    lines = [*([found.recommended().why] if found.pareto else []), found.cost_line]
    for line in headline(found) or lines:
        print_line(console, line)


def _table(found: Snapshot, again: dict[str, Metrics], **looks: bool) -> Table:
    """Return the table of the front below the SGD baseline; `looks` as for `model_cells`."""
    front, baseline, rare = found.front, found.baseline, TPR in found.recipe.search.objectives
    public = f" on {found.recipe.corpus.name} (public)" if found.plan is not None else ""
    shared = shared_params([one.params for one in front])
    alike = f" All have {params_text(shared)}." if shared else ""
    heads = ["trial", *model_heads((one.metrics for one in front), rare=rare)]
    if again:
        heads.insert(2, SEEDS_HEAD)
    table = figures_table(
        f"Pareto front of {found.sweep.name}: {len(front)} of {sum(len(trial.points) for trial in found.trials)} "
        f"models from {len(found.trials)} trials{public}",
        _caption(found, intervals=looks["interval"], rare=rare, again=again) + alike,
        heads,
        "configuration",
    )
    if baseline:
        sgd = {"trial": "SGD"} | model_cells(baseline, **looks)
        table.add_row(*(sgd.get(head, "") for head in heads), "", end_section=not found.schema_only)
    rows = [("", "schema", found.schema_only, SCHEMA_ONLY)] if found.schema_only else []
    for one in front:
        own = {name: value for name, value in one.params.items() if name not in shared}
        rows.append((one.mark, one.key, one.metrics, params_text(own, short=True)))
    for mark, name, metrics, configuration in rows:
        cells = {
            "trial": f"{mark}{name}",
            **model_cells(metrics, **looks),
            SEEDS_HEAD: deciding_cell(again.get(name, {}), "ser", interval=True),
        }
        table.add_row(*(cells[head] for head in heads), configuration, end_section=name == "schema")
    return table


def _caption(found: Snapshot, *, intervals: bool, rare: bool, again: dict[str, Metrics]) -> str:
    """Return the legend of the signs and columns that the table has."""
    front, every = found.front, found.candidates.values()
    above = any(max(one.metrics["ser"], one.point.selection_figures["ser"]) > 1 for one in front)
    return (
        ("2@3: trial 2 after epoch 3. " if any("@" in one.key for one in front) else "")
        + "MIA: with validation utterances. "
        + ("New seeds: mean validation SER of `confirm`. " if again else "")
        + ("±: half the 95 % interval. " if intervals or again else "")
        + ("~: within the noise of its measurement. " if any(one.tied_with and not one.hollow for one in every) else "")
        + (f"{HOLLOW}: {HOLLOW_WORDS}. " if any(one.hollow for one in front) else "")
        + ("MIA TPR: at the FPR beside it, at most 1 %, by a shadow model without privacy. " if rare else "")
        + ("SER above 100 %: more errors than there are slots and intents. " if above else "")
        + epsilon_legend()
        + users_notes(one.metrics for one in front)
    )
