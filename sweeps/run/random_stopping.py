"""A sweep whose own cost is close to one trial's: a secret number of trials, and only the best is released.

Papernot & Steinke (2022): where the number of trials is drawn from a stated distribution and told nobody, candidates
are drawn independently from one fixed distribution, each at the same target ε, and nothing of the others leaves the
sweep, the ε of the best grows by a small factor instead of with their number. So there is no table, no curve and no
front here: candidates are neither shown nor tracked, and their models are deleted. The number lies in the sweep's own
folder, which its holder must keep to themselves.
"""

from __future__ import annotations

import numpy as np

from edp.accounting.gaussian import gaussian_mu
from edp.accounting.planned import planned_ledger
from edp.accounting.selection import random_stopping_epsilon
from edp.spec import EDPSpec, UserError
from sweeps.formatting.figures import params_text
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.space import corners
from sweeps.recipes.target_epsilon import Refused, settle

# The truncated negative binomial distribution with shape 1: a geometric number of trials.
SHAPE = 1.0

_MANY = 10**9
"""Training units, where the corpus is not read yet: shuffled epochs can meet a target with any number or none."""


def draw_number(mean: float) -> int:
    """How many trials: geometric with the given mean, at least 1, from the operating system's entropy."""
    return int(np.random.default_rng().geometric(1 / mean))


def check_candidates(recipe: Recipe) -> None:
    """Raises UserError where a corner of the space cannot meet the target ε.

    Such candidates are refused before they start, which nobody would see of a sweep that shows nothing.
    """
    for params in corners(recipe.dimensions, recipe.shapes):
        try:
            settle(recipe, params, units=_MANY)
        except Refused as refusal:
            raise UserError(f"edp.epsilon = {recipe.edp.epsilon:g} at {params_text(params)}: {refusal}") from None


def epsilon_of_best(recipe: Recipe) -> float:
    """ε of the released trial, whatever candidate it is (honest, at the recipe's δ).

    With shuffled epochs a candidate is one Gaussian mechanism, whatever its decay, epochs and layer scales, and none
    costs more than the target: the worst is the Gaussian mechanism that costs the target.
    """
    assert recipe.edp.epsilon is not None, "checked with the recipe"
    spec = EDPSpec(delta=recipe.edp.delta, z0=1 / gaussian_mu(recipe.edp.epsilon, recipe.edp.delta))
    worst = planned_ledger(spec, epochs=1, micro_batches=1, steps_per_epoch=1, rate=1.0, single_example=True)
    return random_stopping_epsilon(worst, recipe.edp.delta, recipe.search.trials, SHAPE)
