"""What a configuration guarantees before it is trained: a document, and its curve as a page."""

from __future__ import annotations

import math
from collections.abc import Container
from pathlib import Path
from typing import Any

from rich.console import Console

from edp.accounting.composition import composition_of
from edp.accounting.epsilon import epsilon_curve
from edp.ledger import Ledger
from edp.spec import EDPSpec, UserError
from sweeps.formatting.figures import epsilon_text, number
from sweeps.formatting.guarantee import measured
from sweeps.formatting.outputs import output
from sweeps.run.progress import shown_each

_NEIGHBOURS = {
    "shuffle": "replaced by nothing, its place kept (shuffled epochs)",
    "poisson": "added or removed (Poisson sampling)",
}


MOST_LEVELS = 10_000
"""Noise levels of Poisson samples: each takes milliseconds, once for each epoch that is shown."""


def epsilon_document(
    ledger: Ledger, spec: EDPSpec, console: Console, *, shown: Container[int] | None = None
) -> dict[str, Any]:
    """What `epsilon --json` prints.

    Args:
        console: where it shows how far it has come.
        shown: epochs, counted from 0, that are listed; all by default. The last is among them.

    Raises:
        UserError: for more noise levels than can be priced.
    """
    levels = len({(s.rate, s.z) for s in composition_of(ledger).sampled})
    if levels > MOST_LEVELS:
        raise UserError(
            f"epochs = {levels}: with decay {spec.decay} and Poisson sampling each has a noise level of its own; "
            f"allowed: at most {MOST_LEVELS}, or --sampling shuffle, or --decay none"
        )
    curve = epsilon_curve(ledger, spec.delta, wanted=shown, each=shown_each("pricing epochs", console))
    _, epsilon, paper = curve[-1]
    return {
        "epsilon": epsilon,
        "epsilon_user": epsilon if spec.unit == "user" else None,
        "epsilon_paper": paper,
        "epsilon_audited": None,
        "formal_guarantee": measured({"epsilon": epsilon})["formal_guarantee"],
        "delta": spec.delta,
        "unit": spec.unit,
        "neighbours": _NEIGHBOURS[spec.sampling],
        "aggregator": "trusted",
        "per_epoch": [
            {"epoch": epoch + 1, "epsilon": honest, "epsilon_paper": paper} for epoch, honest, paper in curve
        ],
    }


def plot_epsilon(document: dict[str, Any], path: Path) -> None:
    """Writes the curve of `epsilon_document` as a page.

    Raises:
        UserError: where it cannot be written.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    epochs = [row["epoch"] for row in document["per_epoch"]]
    for key, name, dash in (("epsilon", "honest", "solid"), ("epsilon_paper", "paper", "dash")):
        values = [row[key] for row in document["per_epoch"]]
        figure.add_trace(go.Scatter(x=epochs, y=values, name=name, line={"dash": dash}, mode="lines+markers"))
    figure.update_layout(
        template="plotly_white",
        title=f"ε after each epoch, δ = {document['delta']:g}, unit: {document['unit']}<br>"
        f"at the end: honest {epsilon_text(document['epsilon'])}, paper {number(document['epsilon_paper'])}"
        + ("; an infinite ε has no place on the axis" if math.isinf(document["epsilon"]) else ""),
        xaxis_title="epochs",
        yaxis={"title": "ε", "type": "log", "exponentformat": "power", "dtick": "D2"},
    )
    with output(path, "--plot") as file:
        figure.write_html(file, include_plotlyjs=True)
