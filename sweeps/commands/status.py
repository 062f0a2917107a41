"""`edp-sweep status`, `list` and `front`: the state of a sweep, the sweeps of a folder, and the Pareto front."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edp.spec import UserError
from sweeps.commands.console import complain, err, out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, TrackingUri, named
from sweeps.results.cost import cost_text, over_budget, sweep_cost, trial_cost
from sweeps.results.front import tie_lines
from sweeps.results.headline import headline
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep, all_sweeps
from sweeps.text.columns import HOLLOW, HOLLOW_WORDS, SCHEMA_ONLY, TPR, epsilon_legend, model_cells, model_heads
from sweeps.text.figures import FIGURES, deciding_cell, labels_field, params_text, shared_params, users_notes
from sweeps.text.terminal import command_line, figures_table, fitting, print_line
from trainables.records.pareto import Metrics

SEEDS_HEAD = "new\nseeds"
"""The heading of the means over new seeds of the SER that chooses."""
_FEW = 5
"""Most trials that a line names; of further ones it says the number."""


def list_command(storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """List the sweeps of a storage folder, each with its best point."""
    found, broken = [], []
    for sweep in all_sweeps(storage):
        about: dict[str, Any] = {"sweep": sweep.name, "state": "broken", "recipe": None, "trials": None, "error": None}
        try:
            about |= _listed(sweep)
        except UserError as error:
            about["error"] = str(error)
            broken.append(f"{sweep.name} cannot be read: {error}")
        found.append(about)
    found.sort(key=lambda one: one.get("started", ""))
    if as_json:
        print_json(found)
    else:
        _show_list(found)
    for line in broken:
        complain(line)
    if broken:
        raise typer.Exit(2)
    if not (found or as_json):
        start = command_line("run", "quickstart", storage=storage)
        print_line(err, f"no sweeps in {storage}; start one with: {start}")


def _listed(sweep: Sweep) -> dict[str, Any]:
    """Return what `list` says of a sweep. Its best point is the released one, else the recommended one."""
    found = Snapshot(sweep)
    advice = found.recommended()
    best = found.release or advice.point or advice.instead
    return {
        "state": found.state,
        "recipe": found.record.recipe,
        "trials": len(found.trials),
        "error": found.record.error,
        "started": datetime.fromtimestamp(sweep.began).isoformat(" ", "minutes"),
        "best": best.name if best else None,
        "ser": best.selection_figures["ser"] if best else None,
        "epsilon": best.metrics["epsilon"] if best else None,
    }


def _show_list(found: list[dict[str, Any]]) -> None:
    """Print a table, or to a pipe a line for each sweep."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("sweep", "started", "recipe", "state"):
        table.add_column(head)
    for head in ("trials", "best", "SER", "ε"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in found:
        best = ["", "", ""]
        if one.get("best") is not None:
            best = [one["best"], *(FIGURES[key].cell(one) for key in ("ser", "epsilon"))]
        trials = "" if one["trials"] is None else str(one["trials"])
        cells = [one["sweep"], one.get("started", ""), one["recipe"] or "", one["state"], trials, *best]
        table.add_row(*cells)
        if not out.is_terminal:
            known = f"best {best[0]}: SER {best[1]}, ε {best[2]}" if best[0] else ""
            parts = (cells[0], cells[3], f"{trials} trials" if trials else "", cells[1], cells[2], known)
            print_line(out, "  ".join(part for part in parts if part))
    if out.is_terminal:
        out.print(table)
        print_line(out, "best: the released model, else the recommended one, else the best without a guarantee")


def status_command(
    name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False
) -> None:
    """Show a sweep's state, trials, costs and front; also while it runs."""
    show_sweep(named(storage, name), as_json)


def show_sweep(sweep: Sweep, as_json: bool) -> Snapshot:
    """Print a sweep, and return what was read of it."""
    found = Snapshot(sweep)
    if as_json:
        print_json(sweep_document(found))
    else:
        print_sweep(found, out)
    return found


def sweep_document(found: Snapshot) -> dict[str, Any]:
    """Return what `status`, `run` and `resume` print with `--json`."""
    record, recipe, release = found.record, found.recipe, found.release
    return {
        "sweep": found.sweep.name,
        "state": found.state,
        "error": record.error,
        "tracking_uri": record.tracking_uri,
        "run_id": record.run_id,
        "objectives": list(recipe.search.objectives),
        "trials": [t.public() | {"cost": trial_cost(t)} for t in found.trials],
        "cost": sweep_cost(found.trials, found.baseline),
        "budget": recipe.budget.model_dump(exclude_none=True) if recipe.budget is not None else None,
        "baseline": baseline_document(found),
        "front": list(dict.fromkeys(point.trial for point in found.pareto)),
        "choice": found.choice(),
        "epsilon_of_sweep": found.epsilon,
        "epsilon_user_of_sweep": found.epsilon_user,
        "released_corpus": found.private_corpus.name if found.plan is not None else None,
        "released": release.public() | {"output": str(release.folder)} if release is not None else None,
        **labels_field(found.private_corpus),
    }


def print_sweep(found: Snapshot, console: Console) -> None:
    """Print state, trials, costs and front."""
    sweep, record, trials, state = found.sweep, found.record, found.trials, found.state
    shown = ", ".join(f"{n} {state}" for state, n in found.counts.items()) or "no trials yet"
    print_line(console, f"sweep {sweep.name}: {state}; {shown} of {record.wanted}")
    if state == "interrupted":
        print_line(console, f"its process is gone; go on with: {sweep.command('resume')}")
    if record.error is not None:
        print_line(console, f"  {state}: {record.error}")
    same: dict[tuple[str, str | None], list[int]] = {}
    for trial in trials:
        if trial.state in ("stopped", "failed", "refused"):
            same.setdefault((trial.state, trial.reason), []).append(trial.number)
    for (ended, reason), numbers in same.items():
        few = ", ".join(map(str, numbers[:_FEW])) + (f" and {len(numbers) - _FEW} more" if len(numbers) > _FEW else "")
        print_line(console, f"  trial{'s' * (len(numbers) > 1)} {few} {ended}: {reason}")
    spent = sweep_cost(trials, found.baseline)
    print_line(console, f"cost of trials and baseline: {cost_text(spent)}")
    if (over := over_budget(spent, found.recipe)) is not None:
        print_line(console, over)
    print_front(found, console)


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
    return (
        ("2@3: trial 2 after epoch 3. " if any("@" in one.key for one in front) else "")
        + "MIA: with validation utterances. "
        + ("New seeds: mean validation SER of `confirm`. " if again else "")
        + ("±: half the 95 % interval. " if intervals or again else "")
        + ("~: within the noise of its measurement. " if any(one.tied_with and not one.hollow for one in every) else "")
        + (f"{HOLLOW}: {HOLLOW_WORDS}. " if any(one.hollow for one in front) else "")
        + ("MIA TPR: at the FPR beside it, at most 1 %, by a shadow model without privacy. " if rare else "")
        + epsilon_legend()
        + users_notes(one.metrics for one in front)
    )
