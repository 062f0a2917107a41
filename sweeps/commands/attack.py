"""`edp-sweep attack`: all attacks on one trained model, as a table, a JSON document and a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from sweeps.commands.console import LIBRARIES, busy, err, out, print_json
from sweeps.commands.options import RUNS, Json, Storage, TrackingUri
from sweeps.text.figures import (
    LABELS_PUBLIC,
    compared_words,
    epsilon_words,
    extraction_words,
    permitted_words,
    tpr_text,
    users_remark,
)
from sweeps.text.terminal import figures_table, fitting, print_line

_LIMITS = (("1pct_fpr", "TPR at FPR ≤ 1 %"), ("01pct_fpr", "at FPR ≤ 0.1 %"))


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
    out.print(fitting(out, (_table(document, limits) for limits in (_LIMITS, _LIMITS[:1], ()))))
    known = {name: value for name, value in document.items() if value is not None}
    for line in (
        compared_words(document),
        extraction_words(document),
        *([permitted_words(known)] if permitted_words(known) else []),
        f"{', '.join(epsilon_words(known))}, at δ = {document['delta']:g}",
        *users_remark(known),
        *([LABELS_PUBLIC] if document.get("labels_taken_to_be_public") else []),
        f"plots: {document['output']}/attacks.html",
    ):
        print_line(out, line)


def _table(document: dict[str, Any], limits: Sequence[tuple[str, str]]) -> Table:
    """Return a table with a row for each attack: its AUC, and its TPR at each of `limits`."""
    caption = (
        "*: the strongest attack. ± and brackets: 95 % intervals. 5 % at 0.9 %: TPR 5 % at a realised FPR of 0.9 %."
    )
    heads = ("attack", "AUC", *(words for _, words in limits))
    table = figures_table(f"Attacks on {document['run']}", caption, heads)
    table.columns[0].justify = "left"
    for one in document["attacks"]:
        name = f"{one['name']} *" if one["name"] == document["strongest"] else one["name"]
        low, high = one["auc_ci"]
        cells = [f"{one['auc']:.3f} ±{(high - low) / 2:.3f}"]
        for limit, _ in limits:
            low, high = one[f"tpr_at_{limit}_ci"]
            found = tpr_text(one[f"tpr_at_{limit}"], one[f"realised_{limit}"])
            cells.append(f"{found} ({100 * low:.1f} to {100 * high:.1f})")
        table.add_row(name, *cells)
    return table
