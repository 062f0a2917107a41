"""Tables and figures of the benchmarks: the rows of `bench step`, and the paper's Table 2 beside ours.

The paper (Dupuy et al.) ran on eight V100s. Here a bounded number of steps of each method is timed in turns
(`sweeps.bench.step`). An epoch has no other cost, so its time is its number of steps times the time of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sweeps.bench.step import Row
from sweeps.text.paths import output

PUBLIC = ("atis", "snips", "nlu_eval")
GENERATED = ("health", "communication", "video")
METHODS = ["sgd", "edp", "dpsgd"]

PAPER: dict[tuple[str, str], tuple[float, float, float]] = {
    ("clc", "atis"): (9.5, 2.1, 1.04),
    ("clc", "snips"): (9.8, 5.1, 1.01),
    ("clc", "nlu_eval"): (9.9, 7.3, 1.03),
    ("clc", "health"): (21.8, 153.9, 1.14),
    ("clc", "communication"): (109.8, 143.5, 1.15),
    ("clc", "video"): (83.7, 152.4, 1.2),
    ("bert", "atis"): (2.5, 13.0, 1.29),
    ("bert", "snips"): (2.8, 22.8, 1.52),
    ("bert", "nlu_eval"): (3.5, 29.2, 1.62),
    ("bert", "health"): (56.5, 82.0, 2.06),
    ("bert", "communication"): (398.8, 73.8, 2.05),
    ("bert", "video"): (276.0, 80.3, 2.17),
}
"""The paper's seconds per epoch of SGD, and the factors of DP-SGD and eDP-SGD."""


@dataclass(frozen=True)
class Line:
    """A corpus and a model: the paper's figures, ours, and the ratios of ours to the paper's."""

    model: str
    corpus: str
    utterances: int
    paper_sgd_seconds: float
    paper_dpsgd: float
    paper_edpsgd: float
    sgd_seconds: float
    dpsgd: float
    edpsgd: float
    edpsgd_q1: float
    edpsgd_q3: float
    dpsgd_over_paper: float
    edpsgd_over_paper: float


def line(corpus: str, utterances: int, rows: list[Row]) -> Line:
    """Return a line of Table 2 from the rows of a cell; `utterances` is the size of the training split."""
    by_method = {row.method: row for row in rows}
    sgd, edp, dpsgd = (by_method[name] for name in METHODS)
    assert sgd.utterances_per_second is not None
    assert edp.ratio is not None
    assert edp.ratio_q1 is not None
    assert edp.ratio_q3 is not None
    assert dpsgd.ratio is not None
    seconds, paper_dpsgd, paper_edpsgd = PAPER[sgd.model, corpus]
    return Line(
        model=sgd.model,
        corpus=corpus,
        utterances=utterances,
        paper_sgd_seconds=seconds,
        paper_dpsgd=paper_dpsgd,
        paper_edpsgd=paper_edpsgd,
        sgd_seconds=utterances / sgd.utterances_per_second,
        dpsgd=dpsgd.ratio,
        edpsgd=edp.ratio,
        edpsgd_q1=edp.ratio_q1,
        edpsgd_q3=edp.ratio_q3,
        dpsgd_over_paper=dpsgd.ratio / paper_dpsgd,
        edpsgd_over_paper=edp.ratio / paper_edpsgd,
    )


def print_rows(rows: list[Row], console: Console) -> None:
    """Print a table of all rows, a blank line after each cell."""
    table = Table("model", "batch", "workers", "device", "method", "time / SGD", "quartiles", "utt./s", "", box=None)
    for last, row in zip([None, *rows[:-1]], rows, strict=True):
        cell = (row.model, str(row.batch_size), str(row.workers), row.device)
        if last is not None and cell != (last.model, str(last.batch_size), str(last.workers), last.device):
            table.add_row()
        if row.ratio is None:
            table.add_row(*cell, row.method, "-", "", "", row.reason)
        else:
            quartiles = f"{row.ratio_q1:.3f} to {row.ratio_q3:.3f}"
            rate = f"{row.utterances_per_second:.0f}"
            table.add_row(*cell, row.method, f"{row.ratio:.3f}", quartiles, rate, row.reason or "")
    console.print(table)


def print_table2(lines: list[Line], console: Console) -> None:
    """Print the paper's figures beside ours. Seconds are of a whole epoch, scaled up from the timed steps."""
    dpsgd, edpsgd = ("DP-SGD", "paper", "ours/paper"), ("eDP-SGD", "quartiles", "paper", "ours/paper")
    table = Table("model", "corpus", "utterances", "SGD s/epoch", "paper", *dpsgd, *edpsgd, box=None)
    for one in lines:
        table.add_row(
            one.model,
            one.corpus,
            f"{one.utterances:,}",
            f"{one.sgd_seconds:.1f}",
            f"{one.paper_sgd_seconds:g}",
            f"{one.dpsgd:.1f}",
            f"{one.paper_dpsgd:g}",
            f"{one.dpsgd_over_paper:.2f}",
            f"{one.edpsgd:.2f}",
            f"{one.edpsgd_q1:.2f} to {one.edpsgd_q3:.2f}",
            f"{one.paper_edpsgd:g}",
            f"{one.edpsgd_over_paper:.2f}",
        )
    console.print(table)


def plot_rows(rows: list[Row], path: Path) -> None:
    """Write the ratios with their quartiles, a panel for each model and batch size, as one HTML file.

    Raises:
        UserError: if the file cannot be written.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    panels = list(dict.fromkeys((row.model, row.batch_size) for row in rows))
    workers = list(dict.fromkeys((row.workers, row.device) for row in rows))
    figure = make_subplots(
        rows=len(panels), cols=1, subplot_titles=[f"{model.upper()}, batch {batch}" for model, batch in panels]
    )
    for i, panel in enumerate(panels):
        for j, group in enumerate(workers):
            shown = [
                row
                for row in rows
                if (row.model, row.batch_size) == panel and (row.workers, row.device) == group and row.ratio is not None
            ]
            ratios = [row.ratio or 0.0 for row in shown]
            figure.add_trace(
                go.Scatter(
                    x=ratios,
                    y=[row.method for row in shown],
                    mode="markers",
                    name=f"{group[0]} x {group[1]}",
                    legendgroup=str(group),
                    showlegend=i == 0,
                    marker={"color": ["#2a6f97", "#c8553d", "#588157", "#6d597a"][j % 4], "size": 9},
                    error_x={
                        "type": "data",
                        "symmetric": False,
                        "array": [(row.ratio_q3 or 0) - (row.ratio or 0) for row in shown],
                        "arrayminus": [(row.ratio or 0) - (row.ratio_q1 or 0) for row in shown],
                    },
                ),
                row=i + 1,
                col=1,
            )
        figure.add_vline(x=1, line_dash="dot", row=i + 1, col=1)
        figure.update_xaxes(type="log", title="time of a step / SGD's (median, quartiles)", row=i + 1, col=1)
        figure.update_yaxes(autorange="reversed", dtick=1, row=i + 1, col=1)
    height = 160 + 24 * len({row.method for row in rows})  # of a panel, which has a line per method
    figure.update_layout(template="plotly_white", height=height * len(panels), title="Time of a training step")
    with output(path, "--plot") as file:
        figure.write_html(file, include_plotlyjs=True)
