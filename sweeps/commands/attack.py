"""`edp-sweep attack`: all attacks on one trained model, as a table, a JSON document and a page."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import RUNS, Json, Storage, TrackingUri
from sweeps.text.attacks import ATTACK_HEADS, ATTACK_LEGEND, attack_lines, attack_rows
from sweeps.text.terminal import figures_table, fitting, print_line


def attack_command(
    run: Annotated[
        str,
        typer.Argument(help="a model: SWEEP/NUMBER, SWEEP/NUMBER@EPOCH, SWEEP/baseline or a training's folder"),
    ],
    references: Annotated[
        int, typer.Option(help="number of reference models that RMIA and LiRA compare with, even")
    ] = 4,
    reference_training: Annotated[
        Literal["sgd", "own"],
        typer.Option(
            help="how reference models are trained; sgd: without privacy, one set for the whole sweep; own: with the "
            "method of the model under attack"
        ),
    ] = "sgd",
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Run all attacks on one trained model."""
    with busy(LIBRARIES):
        from sweeps.engine.jobs.attack import attack, find_target

    target = find_target(run, storage, tracking_uri)
    document = attack(target, references, reference_training, err)
    if as_json:
        print_json(document)
    else:
        show_attacks(document)


def show_attacks(document: dict[str, Any]) -> None:
    """Print the figures as a table, and the path of the page with the figures as plots."""
    out.print(fitting(out, (_table(document, columns) for columns in (4, 3, 2))))
    for line in (*attack_lines(document), f"plots: {document['output']}/attacks.html"):
        print_line(out, line)


def _table(document: dict[str, Any], columns: int) -> Table:
    table = figures_table(f"Attacks on {document['run']}", ATTACK_LEGEND, ATTACK_HEADS[:columns])
    table.columns[0].justify = "left"
    for row in attack_rows(document):
        table.add_row(*row[:columns])
    return table
