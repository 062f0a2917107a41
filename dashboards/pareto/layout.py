"""The page's empty cards, which the callbacks fill in, and the form of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dash import dcc, html

from dashboards.pareto.data import slider_at
from sweeps.text.columns import HOLLOW
from sweeps.text.figures import FIGURES, MARK, WORTH

_LIMITS = ("epsilon", "ser", "mia_auc")

_GRAPH: Any = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}


def aria(**attributes: str) -> dict[str, Any]:
    """Return the `aria-` attributes for screen readers."""
    return {f"aria-{name}": value for name, value in attributes.items()}


def figures_table(heads: Sequence[Any], rows: Sequence[Any], name: str = "figures", **more: Any) -> html.Table:
    """Return a table of the CSS class `name`; a head is a text, or a cell that is complete."""
    cells = [html.Th(head, scope="col") if isinstance(head, str) else head for head in heads]
    return html.Table([html.Thead(html.Tr(cells)), html.Tbody(rows)], className=name, **more)


def figures_row(head: Any, *cells: Any, **more: Any) -> html.Tr:
    """Return a row of such a table."""
    return html.Tr([html.Th(head, scope="row"), *map(html.Td, cells)], **more)


def _div(name: str, *children: Any, **more: Any) -> html.Div:
    return html.Div(list(children), className=name, **more)


def _chart(name: str) -> html.Div:
    """Return an empty chart; the style sheet sets the height of its frame."""
    return _div(f"{name}-chart", dcc.Graph(id=name, config=_GRAPH))


def _slider(key: str, most: float | None) -> dcc.Input:
    """Return a slider at a recipe's limit or, without one, at its end. A callback sets its range."""
    at = 1.0 if most is None else slider_at(FIGURES[key], most)
    # No `debounce`: with it Dash sets a text selection, which a slider does not have.
    return dcc.Input(id=f"limit-{key}", type="range", min=at - 1, max=at + (most is not None), step="any", value=at)


def with_slider(limits: Mapping[Any, float]) -> list[str]:
    """Return the quantities that have a slider: three, and any other that the recipe limits."""
    return [*_LIMITS, *sorted(set(limits) - set(_LIMITS))]


def answer(limits: Mapping[Any, float]) -> html.Section:
    """Return the card of the recommendation, its reason and the limits, which open as in the recipe."""
    sliders = [
        _div(
            "limit",
            html.Label(FIGURES[key].name, htmlFor=f"limit-{key}"),
            html.Output(id={"type": "limit-text", "key": key}, htmlFor=f"limit-{key}"),
            _slider(key, limits.get(key)),
        )
        for key in with_slider(limits)
    ]
    remain = html.P(id="remain", role="status", className="note")
    return html.Section(
        [
            _div("bar", html.H2("Recommended", id="answer"), html.Button("Show it", id="best", disabled=True)),
            html.P(id="why", role="status"),
            html.P(id="objectives", className="note"),
            _div("bar", html.H3("Limits"), remain, html.Button("Reset", id="reset")),
            _div("limits", *sliders),
        ],
        className="card answer",
    )


def first() -> html.Section:
    """Return the card of the first chart, ε against SER."""
    bands = ", ".join(f"up to {top:,.0f} {words.replace(',', '')}" for top, words in WORTH)
    words = (
        f"Lower left is better. Bands: the strength of an ε (Ponomareva et al. 2023): {bands}, above it none. "
        "Bars: 95% intervals. Ringed: selected; in grey: compared with it. Click a point, or choose a row of the "
        "table, to see it."
    )
    empty, note = html.P("", id="empty", className="note"), html.P(words, className="note")
    return html.Section([html.H2("What a guarantee costs"), empty, _chart("first"), note], className="card")


def scatter() -> html.Section:
    """Return the card of the second chart, of the first two objectives."""
    children = [html.H2("What leaks"), _chart("scatter"), html.P(id="hint", className="note")]
    return html.Section(children, className="card")


def table() -> html.Section:
    """Return the card of the table, a row per configuration."""
    return html.Section(
        [
            _div(
                "bar",
                html.H2("Within the limits"),
                dcc.Checklist(id="dominated", options=[{"label": " also dominated ones", "value": "yes"}], value=[]),
                html.Button("← Previous", id="previous"),
                html.Span(id="table-where", role="status"),
                html.Button("Next →", id="next"),
            ),
            html.P(
                f"◆ Pareto-optimal, {HOLLOW} the same, but only by a lead in MIA within its noise, ○ dominated, ~ tied "
                f"with another within noise, {MARK} an ε of 1e4 or more: no formal guarantee. The head "
                "of a column sorts, the button of a row selects.",
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
    """Return the card of the selected configuration, with Pick, which writes `output`."""
    return html.Section(
        [
            html.H2("Nothing selected", id="chosen", **aria(live="polite")),
            _div(
                "pick",
                html.Button("Pick", id="pick", disabled=True, className="primary"),
                html.P(["writes ", html.Code(str(output))], id="pick-where", className="note"),
            ),
            html.P(id="excluded", role="status"),
            _div(
                "choice",
                html.Label("Register its model as", htmlFor="model-name"),
                dcc.Input(id="model-name", type="text", placeholder="optional: a name", maxLength=100),
            ),
            html.P(id="picked", role="status"),
            _div(
                "pick",
                html.Button("Compare with another", id="pin", disabled=True),
                html.Button("Stop comparing", id="unpin"),
            ),
            html.Div(id="side-by-side"),
            html.Div(id="details"),
        ],
        className="card details",
    )


INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""


def page(
    name: str, output: Path, links: Mapping[str, str | None], seconds: float, limits: Mapping[Any, float]
) -> html.Div:
    """Return the whole page of sweep `name`, refreshed every `seconds` while the sweep runs.

    Args:
        links: addresses of other pages on the sweep, by name.
        limits: the recipe's `search.limits`.
    """
    return html.Div(
        [
            *(dcc.Store(id=name) for name in ("version", "selected", "pinned", "marked")),
            dcc.Store(id="pressed-row"),  # the button of the table that was pressed last, as page.js writes it
            dcc.Store(id="pressed-head"),
            *(dcc.Store(id=f"{name}-{what}") for name in ("rows", "details") for what in ("tree", "put")),
            dcc.Store(id="advised"),  # the recommendation without limits, which the page selects by itself
            dcc.Store(id="advice"),  # the recommendation within the limits
            dcc.Store(id="asked"),  # the point and the model name of a pick that awaits a second click
            dcc.Store(id="limits", data={}),
            dcc.Store(id="sort", data={"key": None, "descending": False}),
            dcc.Store(id="table-page", data=0),
            dcc.Interval(id="tick", interval=int(seconds * 1000)),
            html.A("Skip to the table", href="#table", className="skip"),
            html.Header(
                [
                    html.Div([html.H1(f"Sweep {name}"), html.P(id="state", role="status")]),
                    html.Nav(
                        [
                            html.A(name, href=link, target="_blank", id=name.lower())
                            for name, link in links.items()
                            if link
                        ]
                    ),
                ]
            ),
            html.Main(
                [
                    html.Div([first(), answer(limits), scatter(), table()], className="wide"),
                    html.Div([details(output)], className="narrow"),
                ]
            ),
        ]
    )
