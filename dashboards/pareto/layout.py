"""The page's skeleton and its cards, empty. The callbacks of `app` fill them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dash import dcc, html

from sweeps.store.picks import MAX_NOTE
from sweeps.text.figures import MARK

LIMITS = {"epsilon": "ε (honest)", "ser": "SER", "mia_auc": "MIA AUC", "cost": "Worker-seconds"}
"""Quantities with a slider, by name. `cost` is in GPU-seconds where the sweep had GPUs."""

_GRAPH: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}
_STILL: Any = {"displayModeBar": False, "responsive": True}


def aria(**attributes: str) -> dict[str, Any]:
    """Return the `aria-` attributes for screen readers."""
    return {f"aria-{name}": value for name, value in attributes.items()}


def _card(title: str, children: list[Any], **more: Any) -> html.Section:
    return html.Section([html.H2(title), *children], className="card", **more)


def _chart(name: str, config: Any) -> html.Div:
    """Return an empty chart that is as tall as its frame in the style sheet."""
    return html.Div(dcc.Graph(id=name, config=config), className=f"{name}-chart")


def answer() -> html.Section:
    """Return the first card: the recommendation, its reason and the limits."""
    sliders = [
        html.Div(
            [
                html.Label(
                    html.Span(label, id={"type": "limit-name", "key": key}),
                    htmlFor=f"limit-{key}",
                ),
                html.Output(id={"type": "limit-text", "key": key}, htmlFor=f"limit-{key}"),
                _range(key),
            ],
            className="limit",
        )
        for key, label in LIMITS.items()
    ]
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Recommended", id="answer"),
                    html.Button("Show it", id="best", disabled=True),
                ],
                className="bar",
            ),
            html.P(id="why", role="status"),
            html.Div(
                [
                    html.H3("Limits"),
                    html.P(id="remain", role="status", className="note"),
                    html.Button("Reset", id="reset"),
                ],
                className="bar",
            ),
            html.Div(sliders, className="limits"),
        ],
        className="card answer",
    )


def _range(key: str) -> Any:
    # Not debounced: Dash then sets a text selection, which a slider has none of.
    return dcc.Input(id=f"limit-{key}", type="range", min=0, max=1, step="any", value=1)


def _choice(name: str, label: str, value: str) -> html.Div:
    return html.Div(
        [
            html.Label(label, htmlFor=name),
            dcc.Dropdown(id=name, value=value, clearable=False, searchable=False, options=[value]),
        ],
        className="choice",
    )


def first() -> html.Section:
    """Return the card of the first chart, ε against SER."""
    return _card(
        "What a guarantee costs",
        [
            html.P("", id="empty", className="note"),
            _chart("first", _GRAPH),
            html.P(
                "Lower left is better. Bands: what an ε is worth (Ponomareva et al. 2023). Bars: 95% intervals. "
                "Dashed: SGD, without privacy. Ringed: selected; in grey what it is compared with. Click a point, or "
                "choose a row of the table, to see it.",
                className="note",
            ),
        ],
    )


def scatter(x: str, y: str) -> html.Section:
    """Return the card of the second chart, which opens with the quantities `x` and `y`."""
    return _card(
        "What leaks",
        [
            html.Div(
                [
                    _choice("x", "across", x),
                    _choice("y", "up", y),
                    _choice("colour", "colour", "epsilon"),
                ],
                className="choices",
            ),
            _chart("scatter", _GRAPH),
            html.P(id="hint", className="note"),
        ],
    )


def parallel() -> html.Section:
    """Return the card of the parallel coordinates, a line a configuration."""
    return _card(
        "The same configurations, setting by setting",
        [
            html.Div(
                _chart("parallel", _STILL),
                className="scroll",
                tabIndex=0,
                role="region",
                **aria(label="Parallel coordinates; the table below holds the same figures"),
            ),
            html.P(
                "Solid: Pareto-optimal, coloured as above. Dotted: dominated. Thick: selected. "
                "A bar along an axis: what its limit allows. Outside the limits: left out.",
                className="note",
            ),
        ],
    )


def search(objective: str) -> html.Section:
    """Return the card of what the search learned, which is computed when it is opened: it takes seconds."""
    return html.Section(
        html.Details(
            [
                html.Summary(html.H2("What the search learned"), id="search-open"),
                html.P("", id="search-busy", className="note", role="status"),
                html.P("", id="search-note", className="note"),
                html.H3("How much each setting matters"),
                _chart("importance", _STILL),
                html.H3("Setting by setting"),
                html.Div([_choice("slice", "objective", objective)], className="choices"),
                html.Div(_chart("slices", _STILL), className="scroll"),
                html.H3("What more trials brought: hypervolume of the front, or the gain in a single objective"),
                _chart("progress", _STILL),
            ]
        ),
        className="card",
    )


def sweeps() -> html.Section:
    """Return the card that compares another sweep with this one."""
    return _card(
        "Beside another sweep",
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.Label("sweep", htmlFor="beside"),
                            dcc.Dropdown(id="beside", options=[], placeholder="none: its front is drawn above too"),
                        ],
                        className="choice",
                    )
                ],
                className="choices",
            ),
            html.Div(id="sweeps", className="scroll"),
        ],
    )


def table() -> html.Section:
    """Return the card of the table, a row a configuration."""
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Within the limits"),
                    dcc.Checklist(
                        id="dominated", options=[{"label": " also dominated ones", "value": "yes"}], value=[]
                    ),
                    html.A("CSV", href="/candidates.csv", download="", id="csv", title="all configurations as a table"),
                    html.Button("← Previous", id="previous"),
                    html.Span(id="table-where", role="status"),
                    html.Button("Next →", id="next"),
                ],
                className="bar",
            ),
            html.P(
                f"◆ Pareto-optimal, ○ dominated, ~ within noise of another, ✎ has a note, {MARK} an ε of 1e4 or more: "
                "no formal guarantee. A head sorts, a row's button selects.",
                id="table-key",
                className="note",
            ),
            html.Div(id="rows", className="scroll"),
        ],
        className="card",
        id="table",
        tabIndex=-1,
    )


def details(output: Path) -> html.Section:
    """Return the card of the selected configuration, with Pick, which writes `output`, and the note."""
    return html.Section(
        [
            html.H2("Nothing selected", id="chosen", **aria(live="polite")),
            html.Div(
                [
                    html.Button("Pick", id="pick", disabled=True, className="primary"),
                    html.P(["writes ", html.Code(str(output))], id="pick-where", className="note"),
                ],
                className="pick",
            ),
            html.Div(
                [
                    html.Label("Register its model as", htmlFor="model-name"),
                    dcc.Input(id="model-name", type="text", placeholder="optional: a name", maxLength=100),
                ],
                className="choice",
            ),
            html.P(id="picked", role="status"),
            html.Div(
                [
                    html.Button("Compare with another", id="pin", disabled=True),
                    html.Button("Stop comparing", id="unpin"),
                ],
                className="pick",
            ),
            html.Div(id="side-by-side"),
            html.Div(id="details"),
            html.Label("Note", htmlFor="note"),
            dcc.Textarea(id="note", maxLength=MAX_NOTE, placeholder="kept in the sweep's folder"),
            html.Div(
                [
                    html.Button("Save note", id="save-note", disabled=True),
                    html.P(id="noted", role="status", className="note"),
                ],
                className="pick",
            ),
            html.Div(
                [
                    html.H3("What is known of its ε"),
                    _chart("epsilons", _STILL),
                    html.P(id="epsilons-note", className="note"),
                    html.H3("Epoch by epoch"),
                    _chart("curves", _STILL),
                ],
                id="charts",
                hidden=True,
            ),
        ],
        className="card details",
    )


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
