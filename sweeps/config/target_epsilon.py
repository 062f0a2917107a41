"""The ε of a configuration before its trial starts, and the noise multiplier z0 that a target ε requires.

A configuration that cannot run, or that costs more than the recipe's ε budget, is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from edp.accounting.calibrate import noise_multiplier_for_epsilon
from edp.accounting.epsilon import epsilon
from edp.ledger import Ledger, planned_ledger
from edp.sampling import steps_per_epoch
from edp.spec import UserError
from sweeps.config.recipe import Recipe, example_params
from sweeps.config.space import PAPER_SPACE
from sweeps.text.errors import one_line
from sweeps.text.figures import epsilon_digits
from trainables.config import TrialSpec


class ConfigurationRefused(ValueError):
    """A configuration that must not start. The text is the reason; `params` holds the known settings."""

    def __init__(self, reason: str, params: dict[str, Any]) -> None:
        super().__init__(reason)
        self.params = params


class BudgetExceeded(ConfigurationRefused):
    """A configuration whose ε, `cost`, is over the recipe's ε budget."""

    def __init__(self, budget: float, params: dict[str, Any], cost: float) -> None:
        super().__init__(f"epsilon {epsilon_digits(cost, 4)} is over the budget of {budget:g}", params)
        self.cost = cost


@dataclass(frozen=True)
class ResolvedTrial:
    """A configuration that may run. `params` holds the searched settings by name, with the solved z0."""

    params: dict[str, Any]
    spec: TrialSpec


def schedule_of(spec: TrialSpec, units: int) -> dict[str, Any]:
    """Return the arguments of `planned_ledger` for a trial, besides its spec and epochs.

    Args:
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        UserError: if its batch is larger than the corpus.
    """
    users = spec.edp.unit == "user"
    batch = spec.training.batch_in(units)
    clips = spec.training.clips_in(units, "users" if users else "utterances")
    return {
        "micro_batches": clips,
        "steps_per_epoch": steps_per_epoch(units, batch),
        "rate": min(1.0, batch / units),
        "single_example": batch == clips and not users,
    }


def check_batches(trials: Iterable[TrialSpec], units: int) -> None:
    """Raise if, for some method, every trial's batch is larger than the corpus.

    If some of them fit, the others are refused when the sampler draws them.

    Raises:
        UserError: as `schedule_of`.
    """
    why: dict[str, UserError | None] = {}
    for spec in trials:
        try:
            schedule_of(spec, units)
            why[spec.training.method] = None
        except UserError as error:
            why.setdefault(spec.training.method, error)
    for refusal in filter(None, why.values()):
        raise refusal


def planned(spec: TrialSpec, units: int) -> Ledger:
    """Return the ledger of a trial at its end."""
    return planned_ledger(spec.edp, epochs=spec.training.epochs, **schedule_of(spec, units))


def resolve(recipe: Recipe, params: dict[str, Any], units: int) -> ResolvedTrial:
    """Return the trial of a configuration. If it has a target ε, solve for its z0.

    Args:
        params: the searched settings, by name.
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        BudgetExceeded: if its ε is over the recipe's ε budget.
        ConfigurationRefused: if its settings do not fit together, no z0 meets the target, or its ε cannot be computed,
            as for noise that is correlated over more steps than an epoch has.
    """
    target = params.get("epsilon", recipe.target)
    try:
        if target is not None:
            spec = recipe.trial({**params, "z0": 1.0})
            z0 = noise_multiplier_for_epsilon(target, spec.edp, epochs=spec.training.epochs, **schedule_of(spec, units))
            params = {**params, "z0": z0}
        spec = recipe.trial(params)
        params = {**{name: getattr(spec.edp, name) for name in PAPER_SPACE}, **params}
        ledger = planned(spec, units)
    except ValidationError as error:
        raise ConfigurationRefused(one_line(error), params) from None
    except UserError as error:
        raise ConfigurationRefused(str(error), params) from None
    budget = recipe.epsilon_budget
    if budget is not None:
        cost = epsilon(ledger, spec.edp.delta)
        if cost > budget:
            raise BudgetExceeded(budget, params, cost)
    return ResolvedTrial(params, spec)


def at_target(recipe: Recipe, units: int) -> TrialSpec:
    """Return a trial of the space's first values, with the noise for the recipe's `edp.epsilon`.

    Args:
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        UserError: if no noise meets the target.
    """
    try:
        return resolve(recipe, example_params(recipe) | {"epsilon": recipe.edp.epsilon}, units).spec
    except ConfigurationRefused as refusal:
        raise UserError(f"edp.epsilon: {refusal}") from None
