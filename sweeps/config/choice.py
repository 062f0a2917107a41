"""What chose a configuration, and whether ε covers that choice: the sentence beside every guarantee."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sweeps.text.figures import enumerated

if TYPE_CHECKING:
    from sweeps.config.parts import SearchSpec

GIVEN = "given, not chosen by a sweep that is known here, so nothing says whether ε covers the choice"
"""The words for a configuration that comes from no sweep."""

_READ = {"mia_auc": "MIA AUC", "mia_tpr_at_1pct_fpr": "MIA TPR at 1 % FPR"}
"""Figures that are read off training utterances without noise."""


def chosen_in(search: SearchSpec, limits: Iterable[str] = ()) -> str:
    """Return what chooses among the trials of a sweep, and whether an ε covers that.

    A validation SER is computed from a noisy model and validation utterances: the ε of all models covers it for the
    training utterances, and none does for the validation utterances. An attack reads training utterances themselves.

    Args:
        limits: names of metrics with a limit, which choose too.
    """
    attacks = [words for name, words in _READ.items() if name in (*search.objectives, *limits)]
    by = f"chosen by {enumerated(['validation SER', *attacks])} of the private corpus"
    if attacks:
        return f"{by}, which no ε covers"
    covering = "the ε of all trainings together covers the choice for training utterances"
    return f"{by}: {covering}, no ε does for validation utterances"


def chosen_on(corpus: str) -> str:
    """Return the words for a choice on another corpus, which holds none of the private utterances."""
    return f"chosen on {corpus}, another corpus, so ε covers the choice"


def holds_for(chosen_here: bool | None) -> str:
    """Return the utterances that ε holds for if a model is trained on the training and the validation split.

    Args:
        chosen_here: True if figures of this validation split chose the configuration; None if that is unknown.
    """
    if chosen_here is None:
        return "if figures of the validation utterances chose these settings, ε holds for the training utterances alone"
    if chosen_here:
        return "ε holds for the training utterances alone, because the validation utterances chose"
    return "ε holds for the training and the validation utterances"
