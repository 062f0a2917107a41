"""ε before a trial starts: what a configuration will cost, the z0 that a target ε needs, and who is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from edp.accounting.calibrate import z0_for_epsilon
from edp.accounting.epsilon import epsilon
from edp.accounting.planned import planned_ledger
from edp.ledger import Ledger
from edp.sampling import steps_per_epoch
from edp.spec import UserError
from sweeps.formatting.errors import one_line
from sweeps.recipes.recipe import Recipe
from sweeps.recipes.space import PAPER_SPACE
from trainables.spec import TrialSpec


class Refused(ValueError):
    """A configuration that must not start; its text says why. `params` are what is known of it; `cost` is its ε, where
    that is over the budget."""

    def __init__(self, reason: str, params: dict[str, Any], cost: float | None = None) -> None:
        super().__init__(reason)
        self.params, self.cost = params, cost


def schedule_of(spec: TrialSpec, units: int) -> dict[str, Any]:
    """What `planned_ledger` needs of a trial on so many training utterances, or users where they are the unit, besides
    spec and epochs.

    Raises:
        UserError: where its batch does not fit the corpus.
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
    """Refuses trials of which those of some method all ask for more than the corpus has; of the others' configurations
    some may be refused when they are drawn.

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
    """The ledger that a trial will have executed when it ends."""
    return planned_ledger(spec.edp, epochs=spec.training.epochs, **schedule_of(spec, units))


@dataclass(frozen=True)
class Settled:
    """A configuration that may run. `params` is what the search chose, by name, with the z0 that was solved for."""

    params: dict[str, Any]
    spec: TrialSpec


def settle(recipe: Recipe, params: dict[str, Any], units: int) -> Settled:
    """A configuration with the z0 that its target ε needs, where it names one, and within the recipe's ε budget.

    What has no price is refused too, such as noise that is correlated over more steps than an epoch has.

    Raises:
        Refused: with the reason.
    """
    target = params.get("epsilon", recipe.edp.epsilon)
    try:
        if target is not None:
            spec = recipe.trial({**params, "z0": 1.0})
            z0 = z0_for_epsilon(target, spec.edp, epochs=spec.training.epochs, **schedule_of(spec, units))
            params = {**params, "z0": z0}
        spec = recipe.trial(params)
        params = {**{name: getattr(spec.edp, name) for name in PAPER_SPACE}, **params}
        ledger = planned(spec, units)
    except ValidationError as error:
        raise Refused(one_line(error), params) from None
    except UserError as error:
        raise Refused(str(error), params) from None
    budget = recipe.epsilon_budget
    if budget is not None:
        cost = epsilon(ledger, spec.edp.delta)
        # A target that equals the budget is met to within the accuracy of the bisection.
        if cost > budget * (1 + 1e-6):
            raise Refused(f"epsilon {cost:.4g} is over the budget of {budget:g}", params, cost)
    return Settled(params, spec)
