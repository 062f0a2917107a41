"""The commands of `edp-sweep` that make and read sweeps, and `app`, which holds all commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from edp.spec import UserError
from sweeps.cli.attack import attack
from sweeps.cli.bench import bench
from sweeps.cli.console import PATH, complain, err, file_named, out, print_json
from sweeps.cli.data import data
from sweeps.cli.epsilon import epsilon
from sweeps.cli.plan import plan
from sweeps.cli.pretrain import pretrain
from sweeps.cli.repair import repair
from sweeps.cli.stopped import Commands
from sweeps.cli.verify import verify
from sweeps.formatting.lines import print_line
from sweeps.formatting.outputs import is_printed
from sweeps.formatting.shell import command_line

app = typer.Typer(
    cls=Commands,
    name="edp-sweep",
    help="Sweeps that choose a private fine-tuning configuration: usefulness (SER), leakage (MIA) and guarantee (ε).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Storage = Annotated[Path, typer.Option(help="folder that sweeps live in", **PATH)]
TrackingUri = Annotated[
    str | None, typer.Option(help="MLflow tracking store; by default a SQLite file in the storage folder")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as training.epochs=2; may be repeated"),
]
Register = Annotated[
    str | None,
    typer.Option("--register", metavar="MODEL", help="add the model to MLflow's registry under this name"),
]
WithEncoder = Annotated[
    bool,
    typer.Option("--with-encoder", help="--register takes a frozen public encoder along; else a server must have it"),
]
_RUNS = Path("runs")

app.add_typer(data, name="data")
app.add_typer(bench, name="bench")
app.command()(epsilon)
app.command()(plan)
app.command()(verify)
app.command()(attack)
app.command()(pretrain)
app.command()(repair)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="a recipe's name, or a path to a YAML file")],
    name: Annotated[str | None, typer.Option(help="of the sweep; by default the recipe's and the time")] = None,
    trials: Annotated[int | None, typer.Option(help="how many trials; short for --set search.trials=N")] = None,
    settings: Set = None,
    way: Annotated[
        str | None,
        typer.Option("--plan", metavar="WAY", help="search, choose and release at one ε: a way of `plan`, or cheapest"),
    ] = None,
    storage: Storage = _RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """A sweep, to its front; with --plan, to a released model."""
    from sweeps.recipes.loading import load_recipe

    overrides = (settings or []) + ([f"search.trials={trials}"] if trials is not None else [])
    load_recipe(recipe, overrides)  # refused here, before Ray, PyTorch and MLflow are imported, which takes seconds

    from sweeps.progress.live_table import Progress

    if way is not None:
        from sweeps.commands.plan import run_plan

        found = run_plan(
            recipe, overrides, way, name=name, storage=storage, tracking_uri=tracking_uri, progress=Progress(err)
        )
        if as_json:
            print_json(found)
        else:
            _show_release(found)
        return
    from sweeps.commands.run import start_sweep

    sweep = start_sweep(
        recipe, overrides, name=name, storage=storage, tracking_uri=tracking_uri, progress=Progress(err)
    )
    _show_sweep(sweep, as_json)


@app.command()
def resume(name: str, storage: Storage = _RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """Goes on with a sweep where it stopped, whatever stopped it."""
    from sweeps.commands.run import resume_sweep
    from sweeps.progress.live_table import Progress
    from sweeps.state.sweep import Sweep

    sweep = resume_sweep(Sweep.existing(storage, name), Progress(err), tracking_uri)
    _show_sweep(sweep, as_json)


@app.command("list")
def list_sweeps(storage: Storage = _RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """The sweeps of a storage folder."""
    from sweeps.state.sweep import all_sweeps

    found, broken = [], []
    for sweep in all_sweeps(storage):
        about: dict[str, Any] = {"sweep": sweep.name, "state": "broken", "recipe": None, "trials": None, "error": None}
        try:
            record = sweep.record
            about |= {"state": sweep.state, "recipe": record.recipe, "trials": len(sweep.trials())}
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
        print_line(err, f"no sweeps in {storage}; start one with: {command_line('run', 'quickstart', storage=storage)}")


@app.command()
def status(name: str, storage: Storage = _RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """What a sweep has done; also while it runs, from another shell."""
    from sweeps.results.summary import document, print_sweep
    from sweeps.state.sweep import Sweep

    sweep = Sweep.existing(storage, name)
    if as_json:
        print_json(document(sweep))
    else:
        print_sweep(sweep, out)


@app.command()
def front(name: str, storage: Storage = _RUNS, tracking_uri: TrackingUri = None, as_json: Json = False) -> None:
    """The Pareto-optimal configurations."""
    from sweeps.results.summary import front_document, print_front
    from sweeps.state.sweep import Sweep

    sweep = Sweep.existing(storage, name)
    if as_json:
        print_json(front_document(sweep))
    else:
        print_front(sweep, out)


@app.command()
def pick(
    name: str,
    max_epsilon: Annotated[float | None, typer.Option(help="largest honest ε")] = None,
    max_ser: Annotated[float | None, typer.Option(help="largest SER, 0..1")] = None,
    max_mia_auc: Annotated[float | None, typer.Option(help="largest MIA AUC, 0..1")] = None,
    output: Annotated[
        Path, typer.Option(parser=file_named, metavar="FILE", help="where to write the configuration; - prints it")
    ] = Path("picked.yaml"),
    model_name: Register = None,
    with_encoder: WithEncoder = False,
    storage: Storage = _RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """One configuration of the front, within limits, as a file that `train` accepts."""
    from sweeps.commands.pick import pick as pick_point
    from sweeps.formatting.names import check_model_name
    from sweeps.registry.register import register_point
    from sweeps.results.recommendation import recommended
    from sweeps.results.summary import point_line
    from sweeps.state.shell import train_line
    from sweeps.state.sweep import Sweep

    sweep = Sweep.existing(storage, name)
    printed = is_printed(output)
    if printed and as_json:
        raise UserError(f"--output = {str(output)!r}: --json prints there too; allowed: a file")
    if model_name is not None:
        check_model_name(model_name)
    limits = {"epsilon": max_epsilon, "ser": max_ser, "mia_auc": max_mia_auc}
    given = {k: v for k, v in limits.items() if v is not None}
    point, why = pick_point(sweep, given, output, tracking_uri), recommended(sweep, given).why
    model = None
    if model_name is not None:
        model = register_point(sweep, point, model_name, tracking_uri, with_encoder=with_encoder)
    if as_json:
        print_json({**point.public(), "why": why, "output": str(output), "model": model.document() if model else None})
        return
    says = err if printed else out
    print_line(says, f"picked {point_line(point)}")
    print_line(says, why)
    if not printed:
        uri = tracking_uri or sweep.record.tracking_uri
        print_line(says, f"wrote {output}; train it with: {train_line(output, storage=storage, tracking_uri=uri)}")
    if model is not None:
        print_line(says, model.line(tracking_uri or sweep.record.tracking_uri))


@app.command()
def confirm(
    name: str,
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="trainings of each point of the front")] = 3,
    storage: Storage = _RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """The front trained again with new seeds: means and 95 % intervals of what the search found once."""
    from sweeps.commands.confirm import confirm as confirm_front
    from sweeps.commands.confirm import print_confirmation
    from sweeps.progress.live_table import Progress
    from sweeps.state.sweep import Sweep

    document = confirm_front(Sweep.existing(storage, name), seeds, Progress(err), tracking_uri)
    if as_json:
        print_json(document)
    else:
        print_confirmation(document, out)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="a configuration, as `pick` writes it", **PATH)],
    settings: Set = None,
    on: Annotated[
        Literal["train", "train+valid"], typer.Option(help="the final model also learns from the latter")
    ] = "train",
    standard_split: Annotated[
        bool,
        typer.Option("--standard-split", help="the corpus' published split; short for --set corpus.split=published"),
    ] = False,
    model_name: Register = None,
    with_encoder: WithEncoder = False,
    storage: Storage = _RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """One configuration, trained and measured as a trial is."""
    from sweeps.recipes.loading import load_config

    overrides = (settings or []) + (["corpus.split=published"] if standard_split else [])
    load_config(config, overrides)  # as in `run`

    from sweeps.commands.train import train as train_config
    from sweeps.progress.live_table import Progress
    from sweeps.results.summary import metrics_line

    result = train_config(
        config,
        overrides,
        storage=storage,
        tracking_uri=tracking_uri,
        progress=Progress(err),
        with_valid=on == "train+valid",
        model_name=model_name,
        with_encoder=with_encoder,
    )
    if as_json:
        print_json(result)
        return
    print_line(out, metrics_line(result["metrics"]))
    print_line(out, f"model and ledger in {result['output']}; MLflow run {result['run_id']}")
    if result["model"] is not None:
        print_line(out, f"registered as {result['model']['uri']}")


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
