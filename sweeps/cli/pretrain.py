"""`edp-sweep pretrain`: an encoder for private recipes to start from, trained on public corpora."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from sweeps.commands.console import PATH, err, out, print_json
from sweeps.commands.options import RUNS, Storage
from sweeps.formatting.lines import print_line


def pretrain(
    recipe: Annotated[str, typer.Argument(help="a pretraining recipe's name, or a path to a YAML file")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as training.seed=1; may be repeated"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="new folder; STORAGE/encoders/RECIPE by default", **PATH)
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option("--register", metavar="MODEL", help="add the encoder to MLflow's registry under this name"),
    ] = None,
    storage: Storage = RUNS,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow tracking store; by default a SQLite file in the storage folder")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """An encoder trained on public corpora, for `model.pretrained` of private recipes. Stopped, it goes on when started
    again."""
    from sweeps.recipes.loading import load_pretraining

    load_pretraining(recipe, settings or [])  # as in `run`

    from sweeps.commands.pretrain import pretrain as run

    found = run(
        recipe,
        settings or [],
        output=output,
        storage=storage,
        tracking_uri=tracking_uri,
        console=err,
        model_name=model_name,
    )
    if as_json:
        print_json(found)
        return
    loss = found["loss"][-1][1]
    line = f"the encoder is in {found['output']}: {found['steps']:,} steps, mean loss of the last {loss:.3f}"
    print_line(out, f"{line}; use it with: --set {shlex.quote('model.pretrained=' + found['output'])}")
    if found["model"] is not None:
        print_line(out, f"registered as {found['model']['uri']}")
