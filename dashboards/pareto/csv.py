"""The candidates as a CSV file."""

from __future__ import annotations

import pandas as pd
from dash import Dash
from flask import Response

from dashboards.pareto.data import Snapshot
from dashboards.pareto.source import Source


def candidates_csv(snapshot: Snapshot) -> str:
    """Return a row a candidate: its name, standing, settings (`edp.C`, as `--set` names them) and metrics."""
    advised = snapshot.advice().point
    rows = [
        {
            "point": c.key,
            "trial": c.trial,
            "epoch": c.point.epoch,
            "pareto": c.on_front,
            "recommended": advised is not None and c.key == advised.name,
            "tied_with": " ".join(c.tied_with),
            "run_id": c.point.run_id,
            **{name if "." in name else f"edp.{name}": value for name, value in c.params.items()},
            **c.metrics,
        }
        for c in snapshot.candidates.values()
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def download(app: Dash, source: Source) -> None:
    """Serve the table at its own address, since the page's content policy lets no script make a file."""

    def csv() -> Response:
        name = f"{source.sweep.name}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Type": "text/csv; charset=utf-8"}
        return Response(candidates_csv(source.read()[1]), headers=headers)

    app.server.add_url_rule("/candidates.csv", "candidates", csv)
