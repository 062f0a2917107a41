"""Columns of every table of models: headings, cells, and the legend below."""

from __future__ import annotations

from collections.abc import Iterable

from sweeps.text.figures import FIGURES, MARK, Metrics, deciding_cell, read_text

TPR = "mia_tpr_at_1pct_fpr"
SCHEMA_ONLY = "the schema alone, without private data"
"""The configuration cell of heads that learnt from the schema's text alone."""

HOLLOW = "◇"
"""The mark of a front's point that is there by a lead in MIA within its noise alone (`sweeps.results.front.hollow`)."""
HOLLOW_WORDS = "a lead in MIA that is less than its noise is all that puts it on the front"

SER_HEADS = ["SER\nvalid", "SER\ntest"]
"""The headings of the SER that chooses, and of the SER that nothing chooses by."""


def model_heads(models: Iterable[Metrics], *, rare: bool = False) -> list[str]:
    """Return the headings of the columns of models' figures.

    The ε of users and of the audit have a column only if some model has them, the TPR of the attack only if `rare`.
    """
    models = list(models)
    return [
        *SER_HEADS,
        "MIA AUC",
        *(["MIA TPR"] if rare else []),
        "ε honest",
        *(["ε read"] if any("epsilon_read" in metrics for metrics in models) else []),
        *(["ε user"] if any("epsilon_user" in metrics for metrics in models) else []),
        "ε paper",
    ]


def model_cells(metrics: Metrics, *, interval: bool = False, every: bool = True) -> dict[str, str]:
    """Return the cells of a model by the headings of their columns; "" for a figure that is not known.

    The attack's are of the split that chooses.

    Args:
        interval: True for figures with ± half their 95 % interval; not `every`: the SER that chooses alone.
    """
    valid, test = SER_HEADS
    seen = FIGURES["valid_ser"].cell(metrics, interval=interval)
    return {
        valid: seen,
        test: FIGURES["ser"].cell(metrics, interval=interval and (every or not seen)),
        "MIA AUC": deciding_cell(metrics, "mia_auc", interval=interval and every),
        "MIA TPR": deciding_cell(metrics, TPR, interval=interval and every),
        "ε read": read_text(metrics),
    } | {FIGURES[key].head: FIGURES[key].cell(metrics) for key in ("epsilon", "epsilon_user", "epsilon_paper")}


def epsilon_legend() -> str:
    """Return a caption's explanation of the ε columns."""
    return f"{MARK}: ε of 1e4 or more is no formal guarantee."
