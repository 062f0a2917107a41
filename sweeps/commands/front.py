"""`edp-sweep front`: the Pareto-optimal configurations of a sweep, as a table or a JSON document."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from sweeps.commands.console import out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, TrackingUri, named
from sweeps.text.columns import (
    HOLLOW,
    HOLLOW_WORDS,
    SCHEMA_ONLY,
    SER_HEADS,
    TPR,
    attack_cells,
    epsilon_cells,
    epsilon_heads,
    epsilon_legend,
    ser_cell,
    ser_cells,
)
from sweeps.text.figures import labels_field, params_text, relative_change, shared_params, users_notes
from sweeps.text.terminal import figures_table, fitting, print_line
from trainables.records.pareto import Metrics, deciding

if TYPE_CHECKING:
    from sweeps.store.records import Point, TrialRecord
    from sweeps.store.sweep import Sweep

SEEDS_HEAD = "new\nseeds"
"""The heading of the means over new seeds of the SER that chooses."""


def front_command(
    name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False
) -> None:
    """Show the Pareto-optimal configurations of a sweep."""
    sweep = named(storage, name)
    if as_json:
        print_json(front_document(sweep))
    else:
        print_front(sweep, out)


def front_document(sweep: Sweep) -> dict[str, Any]:
    """Return what `--json` prints.

    `tied_with` is as `sweeps.results.front.ties` defines it, `new_seeds` as `sweeps.results.confirmed.new_seeds`, and
    `by_noise_in_mia` is True for the points of `sweeps.results.front.hollow`.
    """
    from sweeps.results.confirmed import comparable, new_seeds
    from sweeps.results.cost import choice_of, epsilon_of_sweep, epsilon_user_of_sweep, sweep_cost
    from sweeps.results.front import hollow, pareto_front, ties
    from sweeps.results.recommendation import recommended
    from sweeps.store.plans import private_corpus

    recipe, trials = sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives, recipe.search.limits)
    again = comparable(sweep, trials)
    tied = ties(trials, front, recipe.search.objectives, again)
    noisy = hollow(front, recipe.search.objectives, again)
    on_front = {point.name for point in front}
    return {
        "sweep": sweep.name,
        "objectives": list(recipe.search.objectives),
        "front": [
            point.public()
            | {"tied_with": tied.get(point.name, []), "new_seeds": new_seeds(sweep, point)}
            | {"by_noise_in_mia": point.name in noisy}
            for point in front
        ],
        "dominated_but_tied": [
            point.public() | {"tied_with": tied[point.name]}
            for trial in trials
            for point in trial.points
            if point.name in tied and point.name not in on_front
        ],
        **recommended(sweep).document(),
        "cost": sweep_cost(trials, sweep.record.baseline),
        "baseline": baseline_document(sweep),
        "schema_only": sweep.record.schema_only,
        "choice": choice_of(sweep),
        "epsilon_of_sweep": epsilon_of_sweep(sweep, trials),
        "epsilon_user_of_sweep": epsilon_user_of_sweep(sweep, trials),
        **labels_field(private_corpus(sweep)),
    }


def baseline_document(sweep: Sweep) -> dict[str, Any] | None:
    """Return metrics and run of the SGD baseline, which has no guarantee; None while it is not trained."""
    found = sweep.record.baseline
    return found and {**found, "formal_guarantee": False}


def print_front(sweep: Sweep, console: Console) -> None:
    """Print the front, and the ε of the whole sweep, which includes trials that failed or were stopped.

    Of a sweep that chooses on a proxy corpus, print the released model and its ε.
    """
    from sweeps.results.confirmed import comparable, new_seeds
    from sweeps.results.cost import cost_line
    from sweeps.results.front import hollow, pareto_front, tie_lines, ties
    from sweeps.results.headline import headline
    from sweeps.results.recommendation import recommended

    recipe, trials = sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives, recipe.search.limits)
    if front:
        compared = comparable(sweep, trials)
        tied = ties(trials, front, recipe.search.objectives, compared)
        noisy = hollow(front, recipe.search.objectives, compared)
        again = {point.name: means for point in front if (means := new_seeds(sweep, point))}
        # A narrow terminal loses the changes first, and with them the intervals but that of the SER that chooses: a
        # figure without its interval misleads. The epsilons stay.
        layouts = ((True, True), (True, False), (False, False))
        tables = (_table(sweep, trials, front, tied, noisy, again, intervals=i, changes=c) for i, c in layouts)
        console.print(fitting(console, tables))
        for line in tie_lines(tied, {point.name for point in front}):
            print_line(console, f"~ {line}")
    else:
        print_line(console, "no complete trial yet, so no front")
    found = [*([recommended(sweep).why] if front else []), cost_line(sweep, trials)]
    for line in headline(sweep, trials) or found:
        print_line(console, line)


def _table(
    sweep: Sweep,
    trials: list[TrialRecord],
    front: list[Point],
    tied: dict[str, list[str]],
    noisy: set[str],
    again: dict[str, Metrics],
    *,
    intervals: bool,
    changes: bool,
) -> Table:
    """Return the table of the front, with the changes against the SGD baseline that the paper's Table 1 reports."""
    from sweeps.store.plans import plan_of

    baseline = sweep.record.baseline or {}
    models = sum(len(trial.points) for trial in trials)
    rare = TPR in sweep.recipe.search.objectives
    public = f" on {sweep.recipe.corpus.name} (public)" if plan_of(sweep) is not None else ""
    shared = shared_params([point.params for point in front])
    alike = f" All have {params_text(shared)}." if shared else ""
    heads = ["trial", *([SER_HEADS[0], SEEDS_HEAD, *SER_HEADS[1:]] if again else SER_HEADS)]
    heads += [*(["ΔSER", "MIA AUC", "ΔMIA"] if changes else ["MIA AUC"])]
    heads += [*(["MIA TPR"] if rare else []), *epsilon_heads(point.metrics for point in front)]
    table = figures_table(
        f"Pareto front of {sweep.name}: {len(front)} of {models} models from {len(trials)} trials{public}",
        _caption(front, intervals=intervals, changes=changes, tied=tied, noisy=noisy, rare=rare, again=again) + alike,
        heads,
        "configuration",
    )
    if baseline:
        sgd = _cells("SGD", baseline, {}, {}, intervals, changes)
        table.add_row(*(sgd[head] for head in heads), "", end_section=sweep.record.schema_only is None)
    if sweep.record.schema_only is not None:
        alone = _cells("schema", sweep.record.schema_only, {}, baseline, intervals, changes)
        table.add_row(*(alone[head] for head in heads), SCHEMA_ONLY, end_section=True)
    for point in [p for p in front if p.name not in noisy] + [p for p in front if p.name in noisy]:
        mark = HOLLOW if point.name in noisy else "~" if point.name in tied else ""
        name, means = f"{mark}{point.name}", again.get(point.name, {})
        cells = _cells(name, point.metrics, means, baseline, intervals, changes)
        own = {name: value for name, value in point.params.items() if name not in shared}
        table.add_row(*(cells[head] for head in heads), params_text(own, short=True))
    return table


def _cells(
    name: str, metrics: Metrics, again: Metrics, baseline: dict[str, Any], intervals: bool, changes: bool
) -> dict[str, str]:
    """Return a model's cells, by column head. The attack's are of the split that chooses.

    Args:
        again: means over new seeds (`sweeps.results.confirmed.new_seeds`).
    """
    attack, plain = deciding(metrics), deciding(baseline)
    return {
        "trial": name,
        **ser_cells(metrics, interval=intervals, both=changes),
        SEEDS_HEAD: ser_cell(deciding(again), interval=True),
        "ΔSER": _change(metrics["ser"], baseline.get("ser")),
        **attack_cells(metrics, interval=intervals and changes),
        "ΔMIA": _change(attack["mia_auc"], plain.get("mia_auc")),
        **epsilon_cells(metrics),
    }


def _change(value: float, baseline: float | None) -> str:
    """Return the relative change against the baseline, in percent; "" if there is no baseline."""
    if baseline is None:
        return ""
    change = relative_change(value, baseline)
    return "" if math.isnan(change) else f"{change:+.1f}%"


def _caption(
    front: list[Point],
    *,
    intervals: bool,
    changes: bool,
    tied: Collection[str],
    noisy: set[str],
    rare: bool,
    again: dict[str, Metrics],
) -> str:
    """Return the legend of the signs and columns that the table has."""
    above = any(max(point.metrics["ser"], point.deciding["ser"]) > 1 for point in front)
    metrics = [point.metrics for point in front]
    return (
        ("2@3: trial 2 after epoch 3. " if any("@" in point.name for point in front) else "")
        + "MIA: with validation utterances. "
        + ("ΔSER, ΔMIA: test SER and MIA AUC against the SGD baseline. " if changes else "")
        + ("New seeds: mean validation SER of `confirm`. " if again else "")
        + ("±: half the 95 % interval. " if intervals or again else "")
        + ("~: within the noise of its measurement. " if set(tied) - noisy else "")
        + (f"{HOLLOW}: {HOLLOW_WORDS}. " if noisy else "")
        + ("MIA TPR: at the FPR beside it, at most 1 %, by a shadow model without privacy. " if rare else "")
        + ("SER above 100 %: more errors than there are slots and intents. " if above else "")
        + epsilon_legend()
        + users_notes(metrics)
    )
