"""The paper's Table 2: the time of an epoch as a ratio to plain SGD's, beside the paper's figures. By hand:

    python -m tests.benchmarks.tables [--utterances N]

The paper (Dupuy et al.) ran on eight V100s. Here a bounded number of steps of each method is timed in turns
(`tests.benchmarks.timing`). An epoch has no other cost, so its time is its number of steps times the time of a step.
Prints one JSON document with a row for each model and corpus.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from sweeps.commands.app import main
from sweeps.commands.console import print_json
from tests.benchmarks import step
from tests.benchmarks.methods import MODELS
from tests.benchmarks.timing import Cell, Row

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


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def table2(
    models: step.Models = "clc,bert",
    corpora: Annotated[
        str, typer.Option(help="comma-separated; of the paper's six")
    ] = "atis,snips,nlu_eval,health,communication,video",
    utterances: step.Utterances = 20_000,
    batch_size: Annotated[int, typer.Option(min=1, max=1_000_000, help="utterances a step, of all workers")] = 64,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="number of processes, each with one micro-batch")] = 1,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    rounds: step.Rounds = 7,
    steps: step.Steps = 2,
    model_size: step.Sizes = None,
) -> None:
    """Measure the paper's Table 2, beside the paper's figures."""
    (where,) = step.among(device, "--device", ("cpu", "cuda"))[:1]
    cells = [
        (name, Cell(model, batch_size, workers, where))
        for model in step.among(models, "--models", MODELS)
        for name in step.among(corpora, "--corpora", step.PUBLIC + GENERATED)
    ]
    measured = step.timed(cells, METHODS, "--batch-size", utterances, rounds, steps, step.sizes(model_size))
    rows = [asdict(line(name, examples, found)) for name, examples, found in measured]
    settings = {"batch_size": batch_size, "workers": workers, "device": where, "rounds": rounds, "steps": steps}
    print_json({**step.header(), "clock": step.CLOCK[where], **settings, "rows": rows})


if __name__ == "__main__":
    main(app)
