"""The commands of `edp-sweep` that make and read sweeps, and `app`, which holds all commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edp.spec import UserError
from sweeps.commands.attack import attack
from sweeps.commands.bench import bench
from sweeps.cli.choosing import confirm, pick, train
from sweeps.cli.cluster import cluster
from sweeps.commands.console import LIBRARIES, busy, complain, err, out, print_json
from sweeps.commands.data import data
from sweeps.cli.epsilon import epsilon
from sweeps.commands.options import RUNS, Json, Name, Set, Storage, TrackingUri, named, with_trials
from sweeps.cli.plan import plan
from sweeps.cli.pretrain import pretrain
from sweeps.cli.repair import repair
from sweeps.commands.stopped import Commands
from sweeps.cli.verify import verify
from sweeps.formatting.lines import print_line
from sweeps.formatting.shell import called, command_line

app = typer.Typer(
    cls=Commands,
    name="edp-sweep",
    help="Sweeps that choose a private fine-tuning configuration: usefulness (SER), leakage (MIA) and guarantee (ε).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(data, name="data")
app.add_typer(bench, name="bench")
app.add_typer(cluster, name="cluster")


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="a recipe's name, or a path to a YAML file")],
    name: Annotated[
        str | None,
        typer.Option(help="of the sweep; by default the recipe's and the time, with --plan the recipe's alone"),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="how many trials; short for --set search.trials=N")] = None,
    settings: Set = None,
    way: Annotated[
        str | None,
        typer.Option("--plan", metavar="WAY", help="search, choose and release at one ε: a way of `plan`, or cheapest"),
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """A sweep, to its front; with --plan, to a released model."""
    from sweeps.recipes.loading import load_recipe

    overrides = with_trials(settings, trials)
    load_recipe(recipe, overrides)  # refused here, before Ray, PyTorch and MLflow are imported, which takes seconds

    from sweeps.progress.live_table import Progress

    if way is not None:
        with busy(LIBRARIES):
            from sweeps.commands.plan import run_plan

        found = run_plan(
            recipe, overrides, way, name=name, storage=storage, tracking_uri=tracking_uri, progress=Progress(err)
        )
        if as_json:
            print_json(found)
        else:
            _show_release(found)
        return
    with busy(LIBRARIES):
        from sweeps.commands.run import start_sweep

    sweep = start_sweep(
        recipe, overrides, name=name, storage=storage, tracking_uri=tracking_uri, progress=Progress(err)
    )
    _show_sweep(sweep, as_json)


@app.command()
def resume(name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """Goes on with a sweep where it stopped, whatever stopped it."""
    with busy(LIBRARIES):
        from sweeps.commands.run import resume_sweep
        from sweeps.progress.live_table import Progress

    sweep = resume_sweep(named(storage, name), Progress(err), tracking_uri)
    _show_sweep(sweep, as_json)


@app.command("list")
def list_sweeps(storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """The sweeps of a storage folder."""
    from sweeps.state.sweep import all_sweeps

    found, broken = [], []
    for sweep in all_sweeps(storage):
        about: dict[str, Any] = {"sweep": sweep.name, "state": "broken", "recipe": None, "trials": None, "error": None}
        try:
            record = sweep.record
            about |= {"state": sweep.state, "recipe": record.recipe, "trials": len(sweep.trials())}
            about["error"] = record.error
        except UserError as error:
            about |= {"state": "broken", "error": str(error)}
            broken.append(f"{sweep.name} cannot be read: {error}")
        found.append(about)
    if as_json:
        print_json(found)
    for one in found if not as_json else ():
        trials = f"{one['trials']} trials" if one["trials"] is not None else ""
        print_line(out, f"{one['sweep']}  {one['state']}  {trials}".rstrip())
    for line in broken:
        complain(line)
    if broken:
        raise typer.Exit(2)
    if not found and not as_json:
        print_line(
            err, f"no sweeps in {called(storage)}; start one with: {command_line('run', 'quickstart', storage=storage)}"
        )


@app.command()
def status(name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """What a sweep has done; also while it runs, from another shell."""
    from sweeps.results.summary import document, print_sweep

    sweep = named(storage, name)
    if as_json:
        print_json(document(sweep))
    else:
        print_sweep(sweep, out)


@app.command()
def front(name: Name = None, storage: Storage = RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """The Pareto-optimal configurations."""
    from sweeps.results.summary import front_document, print_front

    sweep = named(storage, name)
    if as_json:
        print_json(front_document(sweep))
    else:
        print_front(sweep, out)


# In the order of `--help`.
app.command()(pick)
app.command()(confirm)
app.command()(train)
app.command()(attack)
app.command()(plan)
app.command()(verify)
app.command()(epsilon)
app.command()(pretrain)
app.command()(repair)


def _show_sweep(sweep: Any, as_json: bool) -> None:
    from sweeps.results.summary import document, next_steps, print_sweep

    if as_json:
        print_json(document(sweep))
        return
    print_sweep(sweep, out)
    print_line(out, next_steps(sweep))


def _show_release(found: dict[str, Any]) -> None:
    chosen = ", ".join(f"{key} {value}" for key, value in found["chosen"]["params"].items() if key != "z0")
    print_line(out, f"chosen of sweep {found['sweep']}: trial {found['chosen']['number']} ({chosen})")
    print_line(out, f"released: {found['output']}, test SER {found['metrics']['ser']:.1%}")
    total = f"ε = {found['epsilon']:.4g} at δ = {found['delta']:g}, of search and release together"
    print_line(out, f"{total}; covers {found['covers']}")
