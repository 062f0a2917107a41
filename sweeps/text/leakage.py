"""Results of attacks and audits as text, beside the bound that the ledger gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sweeps.text.figures import number

Figures = Mapping[str, Any]
"""Metrics of a model, or a document of attacks. A missing key, or None, means unknown."""

_TRAINED = {"sgd": "without privacy", "own": "as the model under attack was"}


def tpr_text(tpr: float, realised: float | None, digits: int = 1) -> str:
    """Format a true positive rate with the false positive rate realised at its threshold."""
    words = f"{tpr:.{digits}%}"
    return words if realised is None else f"{words} at {_percent(realised)}"


def audit_words(figures: Figures) -> list[str]:
    """Return both bounds of an audit with their assumptions; [] without an audit."""
    of_any, of_own = (figures.get(f"epsilon_audited_{name}") for name in ("any_mechanism", "own_noise"))
    if of_any is None or of_own is None:
        return []
    honest = figures.get("epsilon")
    shape = (
        "a Gaussian mechanism's" if honest is None or math.isinf(honest) else "its ledger's, with more or less noise"
    )
    return [
        f"ε ≥ {of_any:.3g} whatever the mechanism (Steinke et al. 2023)",
        f"ε ≥ {of_own:.3g} if its trade-off curve is {shape} (f-DP in one run, Mahloujifar et al. 2024)",
    ]


def permitted_words(figures: Figures) -> str:
    """Return the largest true positive rates that the ledger permits any attack; "" where unknown."""
    at_1, at_01, mu = (
        figures.get(name) for name in ("permitted_tpr_at_1pct_fpr", "permitted_tpr_at_01pct_fpr", "gaussian_mu")
    )
    if at_1 is None or at_01 is None or mu is None:
        return ""
    return (
        f"the ledger permits any attack a TPR of {_percent(at_1)} at 1 % FPR and of {_percent(at_01)} at 0.1 % "
        f"(Gaussian DP with μ = {number(mu)})"
    )


def compared_words(document: Figures) -> str:
    """Return the number of reference models and how they were trained."""
    count, kind, epochs = (document[name] for name in ("references", "reference_training", "reference_epochs"))
    return f"compared with {count} reference models trained {_TRAINED[kind]} ({kind}), {epochs} epochs each"


def shadow_words(corpus: str) -> str:
    """Return how the sweep's own attack was trained."""
    return f"a shadow model trained without privacy on {corpus}"


def _percent(share: float) -> str:
    """Format a share in percent with three digits."""
    return f"{100 * share:.3g} %"
