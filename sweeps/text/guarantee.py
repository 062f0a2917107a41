"""Tiers of ε, and how JSON documents state a guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_GUARANTEE = 1e4
"""From here on an ε is no formal guarantee and is labelled so."""

MEANINGFUL = 10.0
"""Largest ε that is called a guarantee."""

WORTH = ((1.0, "strong"), (MEANINGFUL, "reasonable"), (NO_GUARANTEE, "weak, if any"))
"""Tiers of ε by upper end (Ponomareva et al. 2023). Beyond the last: no formal guarantee."""


def measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return `metrics` and `formal_guarantee` for a JSON document.

    `formal_guarantee` is None where there is no ε, as in a failed trial.
    """
    guarantee = metrics["epsilon"] < NO_GUARANTEE if "epsilon" in metrics else None
    return {"metrics": metrics, "formal_guarantee": guarantee}


def delta_remark(delta: float, unit: str, examples: int) -> str | None:
    """Return a warning for a δ of 1/examples or more, which permits publishing an utterance outright; else None."""
    if unit != "example" or delta * examples < 1:
        return None
    return (
        f"edp.delta = {delta:g}: to publish one of the {examples:,} training utterances now and then would pass for "
        f"private with so large a delta; ask for less than {1 / examples:.2g}"
    )
