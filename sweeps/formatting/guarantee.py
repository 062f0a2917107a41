"""Whether an ε is a formal guarantee, and how every JSON document says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_GUARANTEE = 1e4
"""An ε of this size or more is no formal guarantee, and is labelled so wherever it is listed."""

MEANINGFUL = 10.0
"""Up to here an ε is called a guarantee."""

WORTH = ((1.0, "strong"), (MEANINGFUL, "reasonable"), (NO_GUARANTEE, "weak, if any"))
"""What an ε up to so much is worth: the tiers of Ponomareva et al. (2023). Beyond: no formal guarantee."""


def measured(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The two keys that `--json` has of whatever was measured.

    `formal_guarantee` stands beside the metrics, which are numbers; it is None where there is no ε, as of a trial that
    failed.
    """
    guarantee = metrics["epsilon"] < NO_GUARANTEE if "epsilon" in metrics else None
    return {"metrics": metrics, "formal_guarantee": guarantee}


def delta_remark(delta: float, unit: str, examples: int) -> str | None:
    """What is to be said of a δ with which one of so many training utterances could be published; None of a smaller."""
    if unit != "example" or delta * examples < 1:
        return None
    return (
        f"edp.delta = {delta:g}: to publish one of the {examples:,} training utterances now and then would pass for "
        f"private with so large a delta; ask for less than {1 / examples:.2g}"
    )
