"""The paper's Table 2 (Dupuy et al.): time an epoch of each method over SGD's, beside what is measured here.

The paper ran on eight V100s. Here a bounded number of steps of each method is timed in turns (`sweeps.bench.step`), and
an epoch is its number of steps times a step's time: an epoch has no other cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.bench.step import Row

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
"""Seconds an epoch of SGD, and the factors of DP-SGD and eDP-SGD."""


@dataclass(frozen=True)
class Line:
    """A corpus and a model: the paper's figures, ours, and how ours compare."""

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
    """A line of the table from the rows of a cell; `utterances` are those of the training split."""
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
