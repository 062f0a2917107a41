"""`edp-sweep confirm`: train the front again with new seeds, to tell configurations from luck."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import RUNS, Json, Name, Storage, TrackingUri, named
from sweeps.commands.options import Point as PointName
from sweeps.engine.progress import Progress
from sweeps.text.columns import epsilon_legend, model_cells, model_heads
from sweeps.text.figures import FIGURES, LABELS_PUBLIC, deciding_cell, epsilon_text
from sweeps.text.terminal import figures_table, fitting, print_line


def confirm_command(
    name: Name = None,
    point: PointName = None,
    seeds: Annotated[
        int, typer.Option(min=2, max=1000, help="number of new seeds, with one training each for every point")
    ] = 3,
    storage: Storage = RUNS,
    tracking_uri: TrackingUri = None,
    as_json: Json = False,
) -> None:
    """Train the front again with new seeds, and show means and intervals.

    With a point, train that one alone. Intervals are of 95 %.
    """
    with busy(LIBRARIES):
        from sweeps.engine.jobs.confirm import confirm
        from sweeps.results.confirmed import DECIDE

    sweep, progress = named(storage, name), Progress(err)
    with progress.doing("preparing the trainings"):
        document = confirm(sweep, seeds, progress, tracking_uri, point)
    if as_json:
        print_json(document)
    else:
        print_confirmation(document, DECIDE, out)
    if document["failures"]:
        raise typer.Exit(1)


def print_confirmation(document: dict[str, Any], least: int, console: Console) -> None:
    """Print means and intervals beside the sweep's own figures, and that fewer than `least` seeds decide nothing."""
    console.print(fitting(console, (_table(document, of_sweep) for of_sweep in (True, False))))
    if document["seeds"] < least:
        print_line(console, f"{document['seeds']} seeds are too few for a decision; use --seeds {least} or more")
    for failure in document["failures"]:
        print_line(console, f"failed: {failure}")
    cost = document["epsilon_of_sweep_and_confirmation"]
    known = "unknown: a ledger is missing, broken or incomplete" if cost is None else epsilon_text(cost)
    labels = f"; {LABELS_PUBLIC}" if document.get("labels_taken_to_be_public") else ""
    print_line(console, f"ε of the sweep and these trainings together: {known}{labels}")


def _table(document: dict[str, Any], of_sweep: bool) -> Table:
    """Return a table with a row for each point: SER and MIA AUC over the new seeds and, if asked, in the sweep."""
    all_metrics = [point["metrics"] for point in document["points"]]
    means = ["SER valid\nmean ±", "SER test\nmean ±", "MIA AUC\nmean ±"]
    if of_sweep:
        means = ["SER valid\nsweep", *means[:-1], "MIA AUC\nsweep", means[-1]]
    heads = ["trial", "seeds", *means, *(head for head in model_heads(all_metrics) if head.startswith("ε"))]
    caption = (
        ("sweep: the sweep's own figure. " if of_sweep else "")
        + "mean ±: over the new seeds, half the 95 % interval for seeds and utterances. "
        + epsilon_legend()
    )
    title = f"Front of {document['sweep']}, trained again with {document['seeds']} seeds"
    table = figures_table(title, caption, heads)
    for point in document["points"]:
        mean = {
            f"{name}{end}": found[key]
            for name, found in point["confirmed"].items()
            for end, key in (("", "mean"), ("_lower", "lower"), ("_upper", "upper"))
        }
        cells = {
            "trial": point["name"],
            "seeds": str(len(point["runs"])),
            "SER valid\nsweep": FIGURES["valid_ser"].cell(point["metrics"]),
            "SER valid\nmean ±": FIGURES["valid_ser"].cell(mean, interval=True),
            "SER test\nmean ±": FIGURES["ser"].cell(mean, interval=True),
            "MIA AUC\nsweep": deciding_cell(point["metrics"], "mia_auc"),
            "MIA AUC\nmean ±": deciding_cell(mean, "mia_auc", interval=True),
            **model_cells(point["metrics"]),
        }
        table.add_row(*(cells[head] for head in heads))
    return table
