"""Columns of SER, MIA and ε, the same in every table of models: headings, cells, and the legend below."""

from __future__ import annotations

from collections.abc import Iterable

from sweeps.text.figures import MARK, Metrics, epsilon_cell, read_text, tpr_text, user_cell
from trainables.records.pareto import deciding

TPR = "mia_tpr_at_1pct_fpr"
SCHEMA_ONLY = "the schema alone, without private data"
"""The configuration cell of heads that learnt from the schema's text alone."""

HOLLOW = "◇"
"""The mark of a front's point that is there by a lead in MIA within its noise alone (`sweeps.results.front.hollow`)."""
HOLLOW_WORDS = "a lead in MIA that is less than its noise is all that puts it on the front"

SER_HEADS = ["SER\nvalid", "SER\ntest"]
"""The headings of the SER that chooses, and of the SER that nothing chooses by."""


def ser_cells(metrics: Metrics, *, interval: bool = False, both: bool = True) -> dict[str, str]:
    """Return the SER cells of a model by the headings of their columns (`SER_HEADS`), as `ser_cell`.

    Args:
        both: True: `interval` is of both SERs; False: of the one that chooses.
    """
    valid, test = SER_HEADS
    seen = ser_cell(metrics, "valid_ser", interval=interval)
    return {valid: seen, test: ser_cell(metrics, interval=interval and (both or not seen))}


def ser_cell(metrics: Metrics, name: str = "ser", *, interval: bool = False) -> str:
    """Return the SER in percent, with half its 95 % interval if `interval`; "" if it was not measured.

    Args:
        name: `ser`, of the test split, or `valid_ser`.
    """
    if name not in metrics:
        return ""
    return f"{metrics[name]:.1%}{_half(metrics, name, 100, 1) if interval else ''}"


def attack_cells(metrics: Metrics, *, interval: bool = False) -> dict[str, str]:
    """Return the cells of the membership attack by the headings of their columns, of the split that chooses."""
    attack = deciding(metrics)
    return {"MIA AUC": auc_cell(attack, interval=interval), "MIA TPR": tpr_cell(attack, interval=interval)}


def auc_cell(metrics: Metrics, *, interval: bool = False) -> str:
    """Return the AUC of the membership attack, as `ser_cell`."""
    if "mia_auc" not in metrics:
        return ""
    return f"{metrics['mia_auc']:.3f}{_half(metrics, 'mia_auc', 1, 3) if interval else ''}"


def tpr_cell(metrics: Metrics, *, interval: bool = False) -> str:
    """Return the TPR of the membership attack in percent, at the FPR that was realised, as `ser_cell`."""
    if TPR not in metrics:
        return ""
    half = _half(metrics, TPR, 100, 1) if interval else ""
    return tpr_text(metrics[TPR], metrics.get("mia_realised_1pct_fpr")) + half


def _half(metrics: Metrics, name: str, scale: float, digits: int) -> str:
    """Return ± half the width of a figure's 95 % interval; "" if it has none."""
    low, high = metrics.get(f"{name}_lower"), metrics.get(f"{name}_upper")
    return "" if low is None or high is None else f" ±{scale * (high - low) / 2:.{digits}f}"


def epsilon_heads(models: Iterable[Metrics]) -> list[str]:
    """Return the headings of the ε columns; those of users and of the audit only if some model has such an ε."""
    models = list(models)
    return [
        "ε honest",
        *(["ε read"] if any("epsilon_read" in metrics for metrics in models) else []),
        *(["ε user"] if any("epsilon_user" in metrics for metrics in models) else []),
        "ε paper",
    ]


def epsilon_cells(metrics: Metrics) -> dict[str, str]:
    """Return the ε cells of a model by the headings of their columns; "" for an ε that is not known."""
    return {
        "ε honest": epsilon_cell(metrics["epsilon"]) if "epsilon" in metrics else "",
        "ε read": read_text(metrics),
        "ε user": user_cell(metrics),
        "ε paper": epsilon_cell(metrics["epsilon_paper"]) if "epsilon_paper" in metrics else "",
    }


def epsilon_legend() -> str:
    """Return a caption's explanation of the ε columns."""
    return f"{MARK}: ε of 1e4 or more is no formal guarantee."
