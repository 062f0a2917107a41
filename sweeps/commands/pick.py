"""`edp-sweep pick`: write one configuration of a sweep, the recommended one within limits or a named one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from edp.spec import UserError
from sweeps.commands.console import LIBRARIES, ask_to_register, busy, err, out, print_json
from sweeps.commands.options import (
    FILE,
    RUNS,
    AliasOption,
    Json,
    Name,
    Register,
    Storage,
    TrackingUri,
    WithEncoder,
    named,
    registered_alias,
)
from sweeps.commands.options import Point as PointName
from sweeps.store.storage import train_line
from sweeps.text.figures import labels_field, metrics_line, params_text
from sweeps.text.paths import is_printed
from sweeps.text.terminal import print_line


def pick_command(
    name: Name = None,
    point: PointName = None,
    max_epsilon: Annotated[float | None, typer.Option(help="largest honest ε that is allowed")] = None,
    max_ser: Annotated[float | None, typer.Option(help="largest validation SER that is allowed, such as 0.2")] = None,
    max_mia_auc: Annotated[
        float | None, typer.Option(min=0, max=1, help="largest MIA AUC that is allowed, 0 to 1")
    ] = None,
    require_guarantee: Annotated[
        bool,
        typer.Option(
            "--require-guarantee",
            help="refuse a point without a guarantee: with an ε above 10, or above the recipe's target",
        ),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="file to write the configuration to; - prints it", **FILE),
    ] = Path("picked.yaml"),
    force: Annotated[bool, typer.Option("--force", help="replace FILE if it is there")] = False,
    model_name: Register = None,
    alias: AliasOption = None,
    with_encoder: WithEncoder = False,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Write one configuration of a sweep as a file for `train`.

    It is the recommended one within limits, or a named one. The sweep's folder keeps who picked it.
    """
    printed = is_printed(output)
    if printed and as_json:
        raise UserError(f"--output = {str(output)!r}: --json prints there, too; allowed: a file")
    called = registered_alias(model_name, alias, with_encoder)
    limits = {"epsilon": max_epsilon, "ser": max_ser, "mia_auc": max_mia_auc}
    with busy(LIBRARIES):
        from sweeps.registry.pick import Wanted, pick_point
        from sweeps.results.confirmed import seeds_words
        from sweeps.results.snapshot import Snapshot

    wanted = Wanted(output, model_name, called, with_encoder, force, require_guarantee, tracking_uri)
    sweep = named(storage, name)
    found = Snapshot(sweep)
    given = {k: v for k, v in limits.items() if v is not None}
    with busy("registering the model" if model_name else "writing the configuration") as quiet:
        picked, why, model = pick_point(found, given, wanted, point, functools.partial(ask_to_register, quiet=quiet))
    choice, again = found.choice(given), found.new_seeds(picked)
    if as_json:
        about = {
            "why": why,
            "new_seeds": again,
            "choice": choice,
            "output": str(output),
            "model": model.document() if model else None,
        }
        print_json(picked.public() | labels_field(picked.spec.corpus) | about)
        return
    says = err if printed else out
    configuration = f"trial {picked.trial}, epoch {picked.epoch} ({params_text(picked.params)})"
    print_line(says, f"picked {configuration}: {metrics_line(picked.metrics, picked.spec.corpus)}; {choice}")
    print_line(says, why)
    if words := seeds_words(again):
        print_line(says, words)
    if not printed:
        uri = tracking_uri or sweep.record.tracking_uri
        go_on = f"train it with: {train_line(output, storage=storage, tracking_uri=uri)}"
        if picked == found.release:
            go_on = f"its model is in {picked.folder}"  # another training would cost more ε
        print_line(says, f"wrote {output}; {go_on}")
    if model is not None:
        print_line(says, model.line(tracking_uri or sweep.record.tracking_uri))
