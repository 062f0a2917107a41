"""`edp-sweep status` and `list`: the state of a sweep, and the sweeps of a storage folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from edp.spec import UserError
from sweeps.commands.console import complain, err, out, print_json
from sweeps.commands.front import baseline_document, print_front
from sweeps.commands.options import RUNS, Json, Name, Storage, TrackingUri, named
from sweeps.text.figures import labels_field
from sweeps.text.terminal import command_line, print_line

if TYPE_CHECKING:
    from sweeps.store.sweep import Sweep

_FEW = 5
"""Most trials that a line names; of further ones it says the number."""


def list_command(storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """List the sweeps of a storage folder."""
    from sweeps.store.sweep import all_sweeps

    found, broken = [], []
    for sweep in all_sweeps(storage):
        about: dict[str, Any] = {"sweep": sweep.name, "state": "broken", "recipe": None, "trials": None, "error": None}
        try:
            record = sweep.record
            trials = len(sweep.trials())
            about |= {"state": sweep.state, "recipe": record.recipe, "trials": trials, "error": record.error}
        except UserError as error:
            about["error"] = str(error)
            broken.append(f"{sweep.name} cannot be read: {error}")
        found.append(about)
    if as_json:
        print_json(found)
    for one in () if as_json else found:
        counted = f"{one['trials']} trials" if one["trials"] is not None else ""
        print_line(out, f"{one['sweep']}  {one['state']}  {counted}".rstrip())
    for line in broken:
        complain(line)
    if broken:
        raise typer.Exit(2)
    if not found and not as_json:
        start = command_line("run", "quickstart", storage=storage)
        print_line(err, f"no sweeps in {storage}; start one with: {start}")


def status_command(
    name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False
) -> None:
    """Show a sweep's state, trials, costs and front; also while it runs, from another shell."""
    sweep = named(storage, name)
    if as_json:
        print_json(sweep_document(sweep))
    else:
        print_sweep(sweep, out)


def sweep_document(sweep: Sweep) -> dict[str, Any]:
    """Return what `status`, `run` and `resume` print with `--json`."""
    from sweeps.results.cost import choice_of, epsilon_of_sweep, epsilon_user_of_sweep, sweep_cost, trial_cost
    from sweeps.results.front import pareto_front
    from sweeps.store.plans import plan_of, private_corpus, released

    record, recipe, trials = sweep.record, sweep.recipe, sweep.trials()
    front = pareto_front(trials, recipe.search.objectives, recipe.search.limits)
    plan, release = plan_of(sweep), released(sweep)
    return {
        "sweep": sweep.name,
        "state": sweep.state,
        "error": record.error,
        "tracking_uri": record.tracking_uri,
        "run_id": record.run_id,
        "objectives": list(recipe.search.objectives),
        "trials": [t.public() | {"cost": trial_cost(t, recipe)} for t in trials],
        "cost": sweep_cost(trials, record.baseline, recipe),
        "budget": recipe.budget.model_dump(exclude_none=True) if recipe.budget is not None else None,
        "baseline": baseline_document(sweep),
        "front": list(dict.fromkeys(point.trial for point in front)),
        "choice": choice_of(sweep, trials),
        "epsilon_of_sweep": epsilon_of_sweep(sweep, trials),
        "epsilon_user_of_sweep": epsilon_user_of_sweep(sweep, trials),
        "released_corpus": plan.recipe.corpus.name if plan is not None else None,
        "released": release.public() | {"output": str(release.folder)} if release is not None else None,
        **labels_field(private_corpus(sweep)),
    }


def print_sweep(sweep: Sweep, console: Console) -> None:
    """Print state, trials, costs and front."""
    from sweeps.results.cost import cost_text, over_budget, sweep_cost

    record, recipe, trials = sweep.record, sweep.recipe, sweep.trials()
    counts = {
        state: sum(t.state == state for t in trials)
        for state in ("complete", "stopped", "failed", "refused", "running", "interrupted")
    }
    shown = ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "no trials yet"
    wanted = "a secret number" if recipe.search.secret else str(record.wanted)
    state = sweep.state
    print_line(console, f"sweep {sweep.name}: {state}; {shown} of {wanted}")
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
    spent = sweep_cost(trials, record.baseline, recipe)
    print_line(console, f"cost of trials and baseline: {cost_text(spent)}")
    if (over := over_budget(spent, recipe)) is not None:
        print_line(console, over)
    print_front(sweep, console)
