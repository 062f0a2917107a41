"""What a configuration guarantees before it is trained: a document, and its curve as a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from edp.accounting.epsilon import epsilon as honest_epsilon
from edp.accounting.epsilon import epsilon_curve, epsilon_paper
from edp.ledger import Ledger
from edp.spec import EDPSpec
from sweeps.formatting.figures import epsilon_text, number
from sweeps.formatting.guarantee import measured
from sweeps.formatting.outputs import output

_NEIGHBOURS = {
    "shuffle": "replaced by nothing, its place kept (shuffled epochs)",
    "poisson": "added or removed (Poisson sampling)",
}


def epsilon_document(ledger: Ledger, spec: EDPSpec) -> dict[str, Any]:
    """What `epsilon --json` prints."""
    epsilon = honest_epsilon(ledger, spec.delta)
    return {
        "epsilon": epsilon,
        "epsilon_paper": epsilon_paper(ledger, spec.delta),
        "epsilon_audited": None,
        "formal_guarantee": measured({"epsilon": epsilon})["formal_guarantee"],
        "delta": spec.delta,
        "unit": spec.unit,
        "neighbours": _NEIGHBOURS[spec.sampling],
        "aggregator": "trusted",
        "per_epoch": [
            {"epoch": epoch + 1, "epsilon": honest, "epsilon_paper": paper}
            for epoch, honest, paper in epsilon_curve(ledger, spec.delta)
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
