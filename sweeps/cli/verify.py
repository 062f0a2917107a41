"""`edp-sweep verify`: whether a configuration's own steps are what its ledger says."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from sweeps.commands.console import err, out, print_json
from sweeps.formatting.lines import print_line
from trainables.spec import TrialSpec


def verify(
    config: Annotated[str, typer.Argument(help="a configuration that `pick` wrote, or a recipe's name or path")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="change a setting, such as edp.z0=2; may be repeated"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document")] = False,
) -> None:
    """Measures clip and noise of a few steps against the ledger; exit code 1 where they are not what it says."""
    from sweeps.commands.verify import load

    document = with_bar(load(config, settings or []))
    if as_json:
        print_json(document)
    else:
        show(document)
    if document["violations"]:
        raise typer.Exit(1)


def with_bar(spec: TrialSpec) -> dict[str, Any]:
    """What `--json` prints of a configuration, measured under a progress bar."""
    from sweeps.commands.verify import verify as run_verify

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("steps", total=None)
        return run_verify(
            spec,
            lambda line: bar.update(task, description=line),
            lambda done, total: bar.update(task, description="steps", completed=done, total=total),
        )


def show(document: dict[str, Any]) -> None:
    """One page."""
    sensitivity, noise = document["sensitivity"], document["noise_std"]
    endless = math.isinf(sensitivity["declared"])
    lines = [
        f"sensitivity  at most {sensitivity['declared']:.6g} declared, {sensitivity['measured']:.6g} measured over "
        f"{document['pairs']} pairs of neighbours",
        f"noise        std {noise['declared']:.6g} declared, {noise['measured']:.6g} measured",
        *(["             nothing bounds one unit: the layer scales are read off the data"] if endless else []),
        *(f"VIOLATION    {one['parameter']}: {one['what']}" for one in document["violations"]),
    ]
    if not document["violations"]:
        lines.append("no violation: every trainable parameter is clipped and noised as the ledger says")
    for line in lines:
        print_line(out, line)
