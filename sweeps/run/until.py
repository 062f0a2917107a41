"""The end of a search that brings nothing more (`search.until`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.parts import SearchSpec, objective_values
from sweeps.results.front import over_limits
from trainables.records.pareto import deciding, hypervolume

_GAIN = 0.01
"""Share of the hypervolume that the last trials must add, or the front counts as flat."""
_BEYOND = 0.1
"""Distance of the reference point from the worst values, as a share of each objective's range."""


def flat_front(search: SearchSpec, trials: Sequence[FrozenTrial]) -> str | None:
    """Return in words that the front has been flat for long enough to end the search; None if it goes on.

    Objectives are scaled to their ranges over all trials. Kept epochs over a limit of the search do not count.

    Args:
        trials: the trials of the study, in their order.
    """
    if search.until is None:
        return None
    last = search.until.hypervolume_flat
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and "points" in t.user_attrs]
    if len(ended) <= last:
        return None
    figures = [[deciding(point["metrics"]) for point in trial.user_attrs["points"]] for trial in ended]
    values = [
        [objective_values(search.objectives, one) for one in of_trial if not over_limits(one, search.limits)]
        for of_trial in figures
    ]
    everything = np.array([one for of_trial in values for one in of_trial])
    if not len(everything):
        return None
    low, width = everything.min(0), np.ptp(everything, 0)
    scaled = [[((one - low) / np.where(width > 0, width, 1)).tolist() for one in of_trial] for of_trial in values]
    reference = [1 + _BEYOND] * len(search.objectives)
    before, now = (
        hypervolume([one for of_trial in part for one in of_trial], reference) for part in (scaled[:-last], scaled)
    )
    if before < (1 - _GAIN) * now:
        return None
    return f"the front has been flat for {last} trials (search.until), so the search ends"
