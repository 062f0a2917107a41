"""`edp-sweep run` and `resume`: a sweep, run to its front or, with `--plan`, to a released model."""

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
    Shared,
    Storage,
    TrackingUri,
    Trials,
    named,
    with_trials,
)
from sweeps.commands.plan import run_plan, show_release
from sweeps.commands.status import print_sweep, sweep_document
from sweeps.config.loading import load_recipe
from sweeps.run.progress import Progress
from sweeps.store.storage import share_storage, train_line
from sweeps.text.terminal import command_line, print_line

if TYPE_CHECKING:
    from sweeps.store.sweep import Sweep


def run_command(
    recipe: Recipe,
    name: Annotated[
        str | None,
        typer.Option(
            help="name of the sweep; by default the recipe's name and the time, with --plan the recipe's name alone"
        ),
    ] = None,
    trials: Trials = None,
    settings: Set = None,
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="WAY",
            help="search, choose and release within one ε, in a way that `plan` lists, or in the cheapest",
        ),
    ] = None,
    storage: Storage = RUNS,
    shared: Shared = False,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Run a sweep to its front or, with --plan, to a released model."""
    overrides = with_trials(settings, trials)
    load_recipe(recipe, overrides)  # so that a wrong recipe is refused before the slow imports
    with busy(LIBRARIES):
        from sweeps.commands.start import start_sweep

    if shared:
        share_storage(storage)
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
    """Go on with a sweep that was stopped, whatever stopped it."""
    with busy(LIBRARIES):
        from sweeps.commands.start import resume_sweep

    _show(resume_sweep(named(storage, name), Progress(err), tracking_uri), as_json)


def _show(sweep: Sweep, as_json: bool) -> None:
    if as_json:
        print_json(sweep_document(sweep))
    else:
        print_sweep(sweep, out)
        print_line(out, next_steps(sweep))


def next_steps(sweep: Sweep) -> str:
    """Return the commands that may follow a sweep, each with its purpose."""
    from sweeps.results.recommendation import recommended

    storage, uri = sweep.folder.parent, sweep.record.tracking_uri
    # Canaries audit the search. They are made up, so the released model need not be trained on them.
    unplanted = ["--set", "canaries.count=0"] if sweep.recipe.canaries.count else []
    train = train_line("picked.yaml", "--on", "train+valid", *unplanted, storage=storage, tracking_uri=uri)
    what = (
        "the recommended configuration" if recommended(sweep).point else "the best configuration; it has no guarantee"
    )
    steps = [
        (sweep.command("pick"), f"writes {what} to picked.yaml; --max-ser and other options limit it"),
        (sweep.command("report"), "writes report.html, for a privacy review"),
        (sweep.command("confirm"), "trains the front again with new seeds, to tell configurations from luck"),
        (train, "trains the final model"),
        (command_line("status", sweep.name, storage=storage), "shows trials, front and the sweep's own ε"),
        (sweep.command("ui"), "opens a page to compare and pick configurations, and the MLflow UI"),
        (str(sweep.folder / "front.svg"), "is a picture of the front, for a browser"),
    ]
    return "\n".join(["", "What to do next:", *(f"  {command}\n      {what}" for command, what in steps)])
