"""Costs of trainings on one corpus, as what may be added to other costs: mechanisms, not numbers.

The costs of trainings with different units are added for one utterance. A micro-batch or a user that loses one of its
utterances is emptied and filled again, which is two changes of a unit (`Composition.of_group`). A sample draws both or
neither, so they count as one unit with all of the shift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from edp.accounting.composition import Composition, compose, composition_of, composition_of_user
from edp.accounting.epsilon import epsilon_of
from edp.accounting.gaussian import gaussian_mu
from edp.ledger import Ledger
from edp.spec import Unit
from sweeps.config.recipe import Recipe, example_params
from sweeps.config.space import Dimension
from sweeps.config.target_epsilon import ConfigurationRefused, at_target, planned, resolve
from trainables.config import TrialSpec


@dataclass(frozen=True)
class Spending:
    """The cost of one training."""

    cost: Composition
    unit: Unit
    user: Composition | None = None
    """The cost for one user; None if users are unknown."""

    def of_an_utterance(self) -> Spending:
        """Return the cost for one utterance, whatever the unit is."""
        cost = self.cost if self.unit == "example" else self.cost.of_group(2).of_single_units()
        return replace(self, cost=cost, unit="example")


_epsilon_of = lru_cache(maxsize=64)(epsilon_of)  # an account asks again for every check


def units_of(spendings: Iterable[Spending]) -> set[Unit]:
    """Return the units of `spendings`, without those that cost nothing."""
    return {one.unit for one in spendings if one.cost != Composition()}


def together(spendings: Iterable[Spending], delta: float) -> float:
    """Return the ε of everything in `spendings`: for their unit if they have one, else for an utterance."""
    every = list(spendings)
    if len(units_of(every)) > 1:
        every = [one.of_an_utterance() for one in every]
    return _epsilon_of(compose(one.cost for one in every), delta)


def together_for_user(spendings: Sequence[Spending], delta: float) -> float | None:
    """Return the ε of everything in `spendings` for one user; None if that of some training is unknown."""
    known = [replace(one, cost=one.user, unit="user") for one in spendings if one.user is not None]
    return together(known, delta) if known and len(known) == len(spendings) else None


def of_ledger(ledger: Ledger) -> Spending:
    """Return the cost of a ledger's steps.

    Raises:
        UserError: for correlated noise whose steps have no price.
    """
    units = {entry.mechanism.unit for one in (ledger, *ledger.discarded) for entry in one.counted}
    unit: Unit = (
        units.pop() if len(units) == 1 else "example"
    )  # a training has one unit, and none before its first step
    return Spending(composition_of(ledger), unit, user=composition_of_user(ledger))


def of_training(spec: TrialSpec, units: int) -> Spending:
    """Return the cost of a training before it starts.

    Args:
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        UserError: if its batch is larger than the corpus.
    """
    if spec.training.method == "sgd":
        return of_ledger(Ledger(private=False))
    return Spending(composition_of(planned(spec, units)), spec.edp.unit)


def of_trials(recipe: Recipe, units: int, trials: int) -> list[Spending] | None:
    """Return the cost of a recipe's trials before they start; None if it is not known, as without a target ε.

    If targets are searched, each trial counts with the largest. With shuffled epochs a trial is one Gaussian mechanism,
    whatever the configuration. With Poisson sampling the cost is that of the first values of the space.

    Args:
        units: training utterances of the corpus, or users if they are the unit.
        trials: their number.
    """
    searched = recipe.dimensions.get("epsilon")
    target = max(map(float, searched.ends())) if isinstance(searched, Dimension) else recipe.target
    if target is None:
        return None
    if recipe.edp.sampling == "shuffle" and "edp.sampling" not in recipe.space:
        return [Spending(Composition(mu=gaussian_mu(target, recipe.edp.delta)), recipe.edp.unit)] * trials
    params = example_params(recipe)
    try:
        spec = resolve(recipe, params | ({"epsilon": target} if searched is not None else {}), units).spec
    except ConfigurationRefused:
        return None
    return [of_training(spec, units)] * trials


def price(recipe: Recipe, units: int) -> dict[str, float | None]:
    """Return the ε of a trial, of the whole search, and of a choice on a proxy corpus with its release.

    Where z0 is searched, edp.epsilon limits the release alone, so the first two are None.

    Args:
        units: training utterances of the corpus, or users if they are the unit.

    Raises:
        UserError: if no noise meets the target.
    """
    cost = of_training(at_target(recipe, units), units)  # with shuffled epochs that of any configuration
    release = together([cost], recipe.edp.delta)
    trials = recipe.search.trials
    return {
        "trials": trials,
        "epsilon_of_trial": release if recipe.target is not None else None,
        "epsilon_of_search": together([cost] * trials, recipe.edp.delta) if recipe.target is not None else None,
        "epsilon_of_proxy_and_release": release,  # the choice costs nothing
    }
