"""`edp-sweep pick`, `confirm` and `train`: from a front to a model that is served."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from edp.spec import UserError
from sweeps.commands.console import LIBRARIES, PATH, busy, err, file_named, out, print_json
from sweeps.commands.options import RUNS, Json, Name, Register, Set, Storage, TrackingUri, WithEncoder, named
from sweeps.formatting.lines import print_line
from sweeps.formatting.names import is_point
from sweeps.formatting.outputs import is_printed

Point = Annotated[str | None, typer.Argument(metavar="[POINT]", help="a trial, 7, or its model after an epoch, 7@3")]
Alias = Literal["candidate", "champion"]
AliasOption = Annotated[
    Alias | None,
    typer.Option("--alias", help="what --register calls the version: models:/MODEL@ALIAS; by default candidate"),
]


def pick(
    name: Name = None,
    point: Point = None,
    max_epsilon: Annotated[float | None, typer.Option(help="largest honest ε")] = None,
    max_ser: Annotated[float | None, typer.Option(help="largest SER, 0..1")] = None,
    max_mia_auc: Annotated[float | None, typer.Option(help="largest MIA AUC, 0..1")] = None,
    require_guarantee: Annotated[
        bool,
        typer.Option("--require-guarantee", help="refuse a point without one: ε above 10, or the recipe's target"),
    ] = False,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", parser=file_named, metavar="FILE", help="where to write the configuration; - prints it"
        ),
    ] = Path("picked.yaml"),
    force: Annotated[bool, typer.Option("--force", help="replace a FILE that is there")] = False,
    model_name: Register = None,
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """One configuration, the recommended one or the one that is named, as a file that `train` accepts."""
    with busy(LIBRARIES):
        from sweeps.commands.pick import Wanted, pick_point
        from sweeps.results.summary import point_line
        from sweeps.state.shell import train_line

    printed = is_printed(output)
    if printed and as_json:
        raise UserError(f"--output = {str(output)!r}: --json prints there too; allowed: a file")
    if max_mia_auc is not None and not 0 <= max_mia_auc <= 1:
        raise UserError(f"--max-mia-auc = {max_mia_auc:g}: allowed: 0 to 1, such as 0.6")
    called = _alias(model_name, alias, with_encoder)
    name, point = _name_and_point(storage, name, point)
    limits = {"epsilon": max_epsilon, "ser": max_ser, "mia_auc": max_mia_auc}
    wanted = Wanted(output, model_name, called, with_encoder, force, require_guarantee, tracking_uri)
    sweep = named(storage, name)
    given = {k: v for k, v in limits.items() if v is not None}
    with busy("registering the model" if model_name else "writing it down") as quiet:
        picked, why, model = pick_point(sweep, given, wanted, point, functools.partial(_ask, quiet))
    if as_json:
        print_json({**picked.public(), "why": why, "output": str(output), "model": model.document() if model else None})
        return
    says = err if printed else out
    print_line(says, f"picked {point_line(picked)}")
    print_line(says, why)
    if not printed:
        uri = tracking_uri or sweep.record.tracking_uri
        print_line(says, f"wrote {output}; train it with: {train_line(output, storage=storage, tracking_uri=uri)}")
    if model is not None:
        print_line(says, model.line(tracking_uri or sweep.record.tracking_uri))


def _ask(quiet: Callable[[], None], lacks: str) -> bool:
    """Of a person; where nobody is there to answer, it is said, and done."""
    quiet()
    if sys.stdin is not None and sys.stdin.isatty():
        return typer.confirm(f"{lacks}. Register it all the same?", err=True)
    print_line(err, f"{lacks}; --require-guarantee would refuse it")
    return True


def _alias(model_name: str | None, alias: Alias | None, with_encoder: bool) -> Alias:
    """What a version is called."""
    for option, given in (("--alias", alias is not None), ("--with-encoder", with_encoder)):
        if given and model_name is None:
            raise UserError(f"{option}: it is of a version in the registry; allowed: --register MODEL beside it")
    return alias or "candidate"


def _name_and_point(storage: Path, name: str | None, point: str | None) -> tuple[str | None, str | None]:
    """`pick 7@3` is about the newest sweep, unless a sweep is called so."""
    if name is not None and point is None and is_point(name) and not (storage / name).exists():
        return None, name
    return name, point


def confirm(
    name: Name = None,
    point: Point = None,
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="trainings of each point of the front")] = 3,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """The front, or one point, trained again with new seeds: means and 95 % intervals of what the search found once."""
    with busy(LIBRARIES):
        from sweeps.commands.confirm import confirm as confirm_front
        from sweeps.commands.confirm import print_confirmation
        from sweeps.progress.live_table import Progress

    name, point = _name_and_point(storage, name, point)
    document = confirm_front(named(storage, name), seeds, Progress(err), tracking_uri, point)
    if as_json:
        print_json(document)
    else:
        print_confirmation(document, out)
    if document["failures"]:
        raise typer.Exit(1)


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
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """One configuration, trained and measured as a trial is."""
    from sweeps.recipes.loading import load_config

    called = _alias(model_name, alias, with_encoder)
    overrides = (settings or []) + (["corpus.split=published"] if standard_split else [])
    load_config(config, overrides)  # as in `run`

    with busy(LIBRARIES):
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
        alias=called,
    )
    if as_json:
        print_json(result)
        return
    print_line(out, metrics_line(result["metrics"]))
    print_line(out, f"model and ledger in {result['output']}; MLflow run {result['run_id']}")
    if result["model"] is not None:
        print_line(out, f"registered as {result['model']['uri']}")
