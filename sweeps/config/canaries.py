"""Canaries of a private corpus, which void every ε.

The frames and words of canaries are drawn from the corpus by index (`trainables.measure.attacks.canary`). Without one
utterance nearly all canaries are others, so the sum of a step's clipped gradients moves by many clips, where the ledger
charges one. No grammar's utterance is a person's: canaries of a generated corpus do no harm.
"""

from __future__ import annotations

import math

from edp.ledger import Ledger
from edp.spec import UserError
from sweeps.config.recipe import Recipe
from trainables.config import TrialSpec
from trainables.corpora import GENERATED, is_generated
from trainables.records.pareto import Metrics

_VOID = {
    "epsilon": math.inf,
    "epsilon_user": math.inf,
    "gaussian_mu": math.inf,
    "permitted_tpr_at_1pct_fpr": 1.0,
    "permitted_tpr_at_01pct_fpr": 1.0,
}
"""The figures that a ledger guarantees, as they are without a guarantee."""


def uncovered(spec: Recipe | TrialSpec) -> str | None:
    """Return why no ε covers a private training of `spec`, in words; None if one does, or if it is without privacy."""
    if not spec.canaries.count or spec.training.method == "sgd" or is_generated(spec.corpus):
        return None
    return f"no ε covers it, because its {spec.canaries.count:,} canaries are made of utterances of {spec.corpus.name}"


def check_canaries(spec: Recipe | TrialSpec) -> None:
    """Raise if no ε would cover a training of `spec`.

    Raises:
        UserError: naming what is allowed.
    """
    if uncovered(spec) is not None:
        raise UserError(
            f"canaries.count = {spec.canaries.count}: canaries are made of the corpus' utterances, so no ε covers a "
            f"private training with them; allowed: 0, a generated corpus ({', '.join(GENERATED)}), or edp-sweep train "
            "with training.method = sgd"
        )


def covered_ledger(ledger: Ledger | None, spec: Recipe | TrialSpec) -> Ledger | None:
    """Return a training's ledger, as that of a training without privacy if no ε covers it."""
    if ledger is None or uncovered(spec) is None:
        return ledger
    return ledger.model_copy(update={"private": False})


def covered_metrics(metrics: Metrics, spec: Recipe | TrialSpec) -> Metrics:
    """Return a training's metrics, without what its ledger guarantees if no ε covers it."""
    if uncovered(spec) is None:
        return metrics
    return metrics | {name: void for name, void in _VOID.items() if name in metrics}
