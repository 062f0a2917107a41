"""The paper's Table 1 (Dupuy et al.): its points as absolute figures with the ε that they have, and rows beside them.

The paper gives ΔSER and ΔMIA in per cent of SGD's figures. It names neither z0 nor τ nor epochs of a cell, and they are
not needed: its ε comes from the ρ of all epochs alone, and so does that of the mechanism as printed. Its layer scales
are taken as public here; as printed, read off the first private gradient, they leave no finite ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger, planned_ledger
from edp.spec import EDPSpec, UserError
from trainables.records.files import read_json_if_any

CORPORA = {
    "atis": "ATIS",
    "snips": "SNIPS",
    "nlu_eval": "NLU-eval",
    "health": "Health",
    "communication": "Communication",
    "video": "Video",
}
PUBLIC = ("atis", "snips", "nlu_eval")
MODELS = {"clc": "CLC", "bert": "BERT"}
DECAYS = ("none", "linear", "exponential")
EPSILONS = (8, 3, 1)
"""Of the private points."""
_PRIVATE, _SCHEMA = (tuple(f"{kind}_{epsilon}" for epsilon in EPSILONS) for kind in ("private", "schema"))
POINTS = ("sgd", *(f"paper_{decay}" for decay in DECAYS), "edp_front", *_PRIVATE, *_SCHEMA)
PARTS = {"private": _PRIVATE, "schema": _SCHEMA, "mechanism": ("sgd", "edp_front")}
"""Of a row, each measured by itself: the private recipe's points, which take minutes, without and with the text of a
schema; SGD and the paper's mechanism."""

# SGD's SER and MIA AUC in per cent; (ΔSER, ΔMIA, log10 ε) of each of `DECAYS`.
_Cell = tuple[float, float, float]
PAPER: dict[str, tuple[float, float, tuple[_Cell, _Cell, _Cell]]] = {
    "clc_atis": (6.3, 67.5, ((-12.9, -8.26, 4.4), (-10.6, -11.6, 5.8), (-11.9, -11.3, 24.4))),
    "clc_snips": (13.0, 70.6, ((-1.8, -2.5, 3.1), (-10.3, 1.8, 6.5), (-6.7, 4.4, 17.4))),
    "clc_nlu_eval": (26.7, 65.3, ((-0.7, -1.4, 2.0), (3.6, -7.6, 2.7), (1.4, -4.6, 22.1))),
    "clc_health": (6.3, 95.3, ((-1.2, -3.1, 3.6), (-2.5, -2.3, 4.0), (-2.7, -1.5, 4.3))),
    "clc_communication": (5.4, 87.7, ((0.3, -3.2, 6.2), (0.3, -5.7, 7.5), (0.5, -5.4, 19.1))),
    "clc_video": (15.6, 75.1, ((4.0, -2.4, 4.8), (4.4, -3.7, 5.9), (3.1, -6.0, 19.5))),
    "bert_atis": (5.4, 56.1, ((1.3, -2.5, 5.9), (-9.7, -5.2, 6.3), (-4.1, -5.8, 11.1))),
    "bert_snips": (12.7, 65.3, ((-21.5, -8.3, 2.7), (-20.3, -9.2, 2.3), (-7.1, -8.3, 2.7))),
    "bert_nlu_eval": (24.1, 63.6, ((-2.4, -7.6, 2.2), (4.6, -11.6, 1.7), (0.3, -9.5, 2.3))),
    "bert_health": (6.2, 90.6, ((3.2, -4.1, 1.9), (0.8, -2.9, 2.8), (1.2, -4.3, 2.9))),
    "bert_communication": (5.6, 88.4, ((0.3, -4.4, 2.1), (0.2, -3.4, 2.8), (0.7, -4.4, 3.7))),
    "bert_video": (15.8, 81.0, ((4.7, -10.1, 1.9), (4.6, -10.9, 1.8), (3.3, -8.2, 2.3))),
}
"""By `MODEL_CORPUS`, the name of a row."""

ROWS = tuple(PAPER)
_MICRO_BATCHES = 8  # of the paper: one a GPU
_SOURCE = "Dupuy et al., Table 1"


@dataclass(frozen=True)
class Entry:
    """A point of a row. Rates are 0..1; what does not apply, or is not known, is None. SGD has no ε."""

    corpus: str
    model: str
    point: str
    ser: float
    mia_auc: float
    epsilon: float | None
    delta: float | None
    epsilon_paper: float | None
    seconds: float | None
    """Of one training."""
    seeds: int | None
    command: str


@dataclass(frozen=True)
class Note:
    """What else is known of a point that was measured: each seed's figures, and what LiRA finds."""

    point: str
    sers: list[float]
    mia_aucs: list[float]
    lira_tpr_at_1pct_fpr: float
    """0..1, the higher of online and offline LiRA's."""
    chosen: dict[str, Any] | None
    references: Literal["sgd", "own"] = "sgd"
    """How the models that LiRA compares with were trained: without privacy, or as the point's own."""


@dataclass(frozen=True)
class Measurement:
    """How points of a row were measured together. `points` names them; the front came with SGD."""

    corpus: str
    model: str
    date: str
    trials: int
    machine: dict[str, Any]
    versions: dict[str, str]
    points: list[Note]


@dataclass(frozen=True)
class Result:
    """The whole result, as its file holds it."""

    rows: list[Entry]
    measurements: list[Measurement]

    def document(self) -> dict[str, Any]:
        """Return a document for JSON."""
        return asdict(self)


def names_of(row: str) -> tuple[str, str]:
    """Return corpus and model of a row, as the paper writes them."""
    model, _, corpus = row.partition("_")
    return CORPORA[corpus], MODELS[model]


def named_row(row: str | None, corpus: str | None, model: str | None) -> str:
    """Return the name of a row, given by its name or by corpus and model as the paper or a recipe writes them.

    Raises:
        UserError: for what is no row.
    """
    if row is not None and (corpus is not None or model is not None):
        raise UserError(f"--row = {row!r}: --corpus and --model name one too; allowed: one of both ways")
    if row is not None:
        if row not in ROWS:
            raise UserError(f"--row = {row!r}: allowed: {', '.join(ROWS)}")
        return row
    if corpus is None or model is None:
        missing = "--corpus" if corpus is None and model is not None else "--model" if corpus is not None else "--row"
        allowed = {"--corpus": CORPORA.values(), "--model": MODELS.values(), "--row": ROWS}[missing]
        raise UserError(f"{missing} is missing; allowed: {', '.join(allowed)}")
    return f"{_known('--model', model, MODELS)}_{_known('--corpus', corpus, CORPORA)}"


def _known(option: str, word: str, names: dict[str, str]) -> str:
    for key, shown in names.items():
        if word.lower() in (key, shown.lower()):
            return key
    raise UserError(f"{option} = {word!r}: allowed: {', '.join(names.values())}")


def is_generated(row: str) -> bool:
    """Return whether the corpus of a row is generated, in the place of a private one of the paper's."""
    return row.partition("_")[2] not in PUBLIC


def delta_of(row: str) -> float:
    """Return the paper's δ: 5e-4 for the public corpora, 5e-5 for those of a million utterances."""
    return 5e-5 if is_generated(row) else 5e-4


def paper_entries(row: str) -> list[Entry]:
    """Return the paper's three points of a row."""
    corpus, model = names_of(row)
    ser, auc, cells = PAPER[row]
    delta = delta_of(row)
    return [
        Entry(
            corpus=corpus,
            model=model,
            point=f"paper_{decay}",
            ser=round(ser / 100 * (1 + dser / 100), 6),
            mia_auc=round(auc / 100 * (1 + dauc / 100), 6),
            epsilon=epsilon(printed_ledger(10**claimed, delta), delta),
            delta=delta,
            epsilon_paper=10**claimed,
            seconds=None,
            seeds=None,
            command=_SOURCE,
        )
        for decay, (dser, dauc, claimed) in zip(DECAYS, cells, strict=True)
    ]


def printed_ledger(claimed: float, delta: float) -> Ledger:
    """Return the ledger of a run as printed whose `epsilon_paper` is `claimed`: 8 micro-batches, public scales.

    One epoch stands for all: shuffled epochs compose through Σ 1/z², which is 2ρ, and ε = ρ + 2 √(ρ ln 1/δ) gives ρ.
    """
    log = math.log(1 / delta)
    root = claimed / (math.sqrt(log + claimed) + math.sqrt(log))
    spec = EDPSpec(z0=1 / (math.sqrt(2) * root), noise="paper", alpha="none", delta=delta)
    run: dict[str, Any] = {"micro_batches": _MICRO_BATCHES, "steps_per_epoch": 100, "rate": 0.01}
    return planned_ledger(spec, epochs=1, single_example=False, **run)


def merged(known: Result, entries: Sequence[Entry], measurement: Measurement) -> Result:
    """Return `known` with its entries of the same points replaced; rows in the paper's order."""
    place = {names_of(row): i for i, row in enumerate(ROWS)}
    order = {point: i for i, point in enumerate(POINTS)}
    own = (measurement.corpus, measurement.model)
    again = {one.point for one in entries}
    rows = [one for one in known.rows if (one.corpus, one.model) != own or one.point not in again] + list(entries)
    measurements = [measurement]
    for one in known.measurements:
        left = [note for note in one.points if (one.corpus, one.model) != own or note.point not in again]
        measurements += [replace(one, points=left)] if left else []
    return Result(
        sorted(rows, key=lambda one: (place[one.corpus, one.model], order[one.point])),
        sorted(measurements, key=lambda one: (place[one.corpus, one.model], order[one.points[0].point])),
    )


def read_result(path: Path) -> Result | None:
    """Return a result that was written before, None if there is none.

    Raises:
        UserError: for a file that is not whole, or has a row that the paper has not.
    """
    found = read_json_if_any(path, Result)
    rows = {names_of(row) for row in ROWS}
    known: list[Entry | Measurement] = [] if found is None else [*found.rows, *found.measurements]
    for one in known:
        if (one.corpus, one.model) not in rows:
            raise UserError(f"{path}: {one.corpus}, {one.model} is no row of the paper's table")
        if isinstance(one, Entry) and one.point not in POINTS:
            raise UserError(f"{path}: point = {one.point!r}; allowed: {', '.join(POINTS)}")
    return found
