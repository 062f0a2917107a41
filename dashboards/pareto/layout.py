"""The page's skeleton, which the callbacks of `app` fill in."""

from __future__ import annotations

from pathlib import Path

from dash import dcc, html

from dashboards.pareto.cards import answer, aria, details, first, parallel, scatter, search, sweeps, table

THEME = """
  // Before anything is painted: what was chosen here last time, else what the system asks for.
  document.documentElement.dataset.theme = localStorage.getItem("edp-theme")
    || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
"""
"""A script that the page's policy knows by its hash (`dashboards.pareto.guard`)."""

INDEX = (
    f"""<!DOCTYPE html>
<html lang="en">
<head>{{%metas%}}<title>{{%title%}}</title>
<script>{THEME}</script>
"""
    + """{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
)


def page(
    name: str,
    output: Path,
    mlflow: str | None,
    seconds: float,
    axes: tuple[str, str] = ("ser", "mia_auc"),
    token: str = "",
) -> html.Div:
    """Return the whole page of sweep `name`, refreshed every `seconds` while the sweep runs.

    Args:
        axes: metrics that it opens on, across and up.
        token: by which Pick knows that it was this page that was clicked on.
    """
    return html.Div(
        [
            dcc.Store(id="version"),
            dcc.Store(id="theme"),
            dcc.Store(id="narrow"),
            dcc.Store(id="limits", data={}),
            dcc.Store(id="selected"),
            dcc.Store(id="advised"),  # what is recommended without limits, and was selected for that
            dcc.Store(id="advice"),  # within the limits
            dcc.Store(id="pinned"),
            dcc.Store(id="link", data={}),
            dcc.Store(id="written"),
            dcc.Store(id="marked"),
            dcc.Store(id="asked"),  # which pick was asked about, and under which name
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="token", data=token),
            dcc.Store(id="sort", data={"key": None, "descending": False}),
            dcc.Store(id="table-page", data=0),
            dcc.Interval(id="tick", interval=int(seconds * 1000)),
            html.A("Skip to the table", href="#table", className="skip"),
            html.Header(
                [
                    html.Div([html.H1(f"Sweep {name}"), html.P(id="state", role="status")]),
                    html.Nav(
                        [
                            *([html.A("MLflow", href=mlflow, target="_blank", id="mlflow")] if mlflow else []),
                            html.Button("Dark", id="toggle", **aria(label="Switch between light and dark")),
                        ]
                    ),
                ]
            ),
            html.Main(
                [
                    html.Div(
                        [answer(), first(), scatter(*axes), table(), parallel(), search(axes[0]), sweeps()],
                        className="wide",
                    ),
                    html.Div([details(output)], className="narrow"),
                ]
            ),
        ]
    )
