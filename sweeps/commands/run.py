"""`edp-sweep run` and `resume`: a sweep, to its front; with `--plan`, to a released model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import (
    RUNS,
    Json,
    Name,
    Recipe,
    Set,
    Storage,
    TrackingUri,
    Trials,
    named,
    with_trials,
)
from sweeps.commands.plan import run_plan, show_release
from sweeps.commands.status import print_sweep, sweep_document
from sweeps.config.loading import load_recipe
from sweeps.store.storage import train_line
from sweeps.text.terminal import command_line, print_line

if TYPE_CHECKING:
    from sweeps.store.sweep import Sweep


def run_command(
    recipe: Recipe,
    name: Annotated[
        str | None,
        typer.Option(help="of the sweep; by default the recipe's and the time, with --plan the recipe's alone"),
    ] = None,
    trials: Trials = None,
    settings: Set = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="WAY", help="search, choose and release at one ε: a way of `plan`, or cheapest"),
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """A sweep, to its front; with --plan, to a released model."""
    overrides = with_trials(settings, trials)
    load_recipe(recipe, overrides)  # refused here, before Ray, PyTorch and MLflow are imported, which takes seconds
    with busy(LIBRARIES):
        from sweeps.commands.start import start_sweep
        from sweeps.run.progress import Progress

    where: dict[str, Any] = {"name": name, "storage": storage, "tracking_uri": tracking_uri, "progress": Progress(err)}
    if plan is not None:
        found = run_plan(recipe, overrides, plan, **where)
        if as_json:
            print_json(found)
        else:
            show_release(found)
        return
    _show(start_sweep(recipe, overrides, **where), as_json)


def resume_command(
    name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False
) -> None:
    """Goes on with a sweep where it stopped, whatever stopped it."""
    with busy(LIBRARIES):
        from sweeps.commands.start import resume_sweep
        from sweeps.run.progress import Progress

    _show(resume_sweep(named(storage, name), Progress(err), tracking_uri), as_json)


def _show(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(sweep_document(sweep))
    else:
        print_sweep(sweep, out)
        print_line(out, next_steps(sweep))


def next_steps(sweep: Sweep) -> str:
    """Return the commands that a user may want to type after a sweep, each with what it does."""
    from sweeps.results.recommendation import recommended

    storage, uri = sweep.folder.parent, sweep.record.tracking_uri
    # Canaries that audit the search belong to no person, and need not be in what is released.
    unplanted = ["--set", "canaries.count=0"] if sweep.recipe.canaries.count else []
    train = train_line("picked.yaml", "--on", "train+valid", *unplanted, storage=storage, tracking_uri=uri)
    what = "the recommended configuration" if recommended(sweep).point else "the best one, which has no guarantee"
    steps = [
        (sweep.command("pick"), f"{what}, as picked.yaml; --max-ser and others limit it"),
        (sweep.command("report"), "report.html, for a privacy review"),
        (sweep.command("confirm"), "the front again with new seeds: what of it was luck"),
        (train, "the final model"),
        (command_line("status", sweep.name, storage=storage), "trials, front and the sweep's own epsilon"),
        (sweep.command("ui"), "a page to look at all of it and pick, and the MLflow UI"),
        (str(sweep.folder / "front.svg"), "the front as a picture: open it in a browser"),
    ]
    return "\n".join(["", "What to do next:", *(f"  {command}\n      {what}" for command, what in steps)])
