"""The cost of choosing a configuration, before anything runs: one ε for search and release together.

| strategy | release | cost of the choice |
|---|---|---|
| `all_trials` | the best trial | all trials, composed |
| `random_stopping` | the best trial | `random_stopping_epsilon`: a secret number of trials, only the best is seen |
| `proxy` | a training on the private corpus | nothing: trials on a public corpus |

The noise of each strategy is solved for, so that search and release together cost the target. The cheapest strategy
leaves the largest part of the target to the release.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from edp.accounting.calibrate import calibrate_noise
from edp.accounting.composition import Composition, compose, composition_of
from edp.accounting.epsilon import epsilon_of
from edp.accounting.gaussian import gaussian_mu
from edp.accounting.selection import random_stopping_epsilon
from edp.ledger import planned_ledger
from edp.spec import EDPSpec, UserError
from sweeps.config.choice import chosen_in, chosen_on
from sweeps.config.random_stopping import SHAPE
from sweeps.config.recipe import Recipe, example_params
from sweeps.config.target_epsilon import schedule_of

_CHECK = "the check of public corpora for private utterances is not covered"


@dataclass(frozen=True)
class SelectionStrategy:
    """One valid way to choose and release a model at a total ε."""

    name: str
    epsilon_of_choice: float
    """The ε of the search. It includes the release if that is one of the trials."""
    epsilon_of_release: float
    """The ε of the released training alone, which is the target of a trial with this strategy."""
    epsilon_total: float
    trials: int
    covers: str


@dataclass(frozen=True)
class Prices:
    """A recipe's strategies at `target`, the cheapest one first."""

    target: float
    delta: float
    ways: tuple[SelectionStrategy, ...]
    out_of_reach: tuple[str, ...] = ()
    """Names of strategies that cost more than `target` whatever the noise."""

    def document(self) -> dict[str, Any]:
        """Return the document that `edp-sweep plan --json` prints."""
        return {**asdict(self), "cheapest": self.ways[0].name}


def price(recipe: Recipe, units: int, target: float) -> Prices:
    """Price all strategies of a recipe.

    With shuffled epochs a training is one Gaussian mechanism, whatever the configuration, so prices are exact. With
    Poisson sampling they are those of the first values of the space.

    Args:
        units: private training utterances, or users if they are the unit.

    Raises:
        UserError: if no noise meets the target with any strategy.
    """
    if not 0 < target < math.inf:
        raise UserError(f"epsilon = {target:g}: allowed: positive and finite")
    spec, delta, trials = recipe.trial({**example_params(recipe), "z0": 1.0}), recipe.edp.delta, recipe.search.trials
    schedule = schedule_of(spec, units)

    def training(z0: float) -> Composition:
        noisy = spec.edp.model_copy(update={"z0": z0})
        return composition_of(planned_ledger(noisy, epochs=spec.training.epochs, **schedule))

    def cost(*parts: Composition) -> float:
        return epsilon_of(compose(parts), delta)

    def proxy() -> SelectionStrategy:
        alone = cost(training(calibrate_noise(lambda z: cost(training(z)), target)))
        assert recipe.search.proxy is not None
        words = f"the release; {chosen_on(recipe.search.proxy.name)}; {_CHECK}"
        return SelectionStrategy("proxy", 0.0, alone, alone, trials, words)

    def all_trials() -> SelectionStrategy:
        z0 = calibrate_noise(lambda z: cost(*[training(z)] * trials), target)
        total = cost(*[training(z0)] * trials)
        return SelectionStrategy(
            "all_trials", total, cost(training(z0)), total, trials, f"all trainings; {_by_ser(recipe)}"
        )

    def random_stopping() -> SelectionStrategy:
        z = calibrate_noise(lambda z: _best_of(z, delta, trials), target)
        total, one = _best_of(z, delta, trials), cost(Composition(mu=1 / z))
        # Raises if a training cannot be had for `one`: its parts without noise of z0, such as a quantile, cost too.
        calibrate_noise(lambda z0: cost(training(z0)), one)
        return SelectionStrategy(
            "random_stopping", total, one, total, trials, f"the released training; {_by_ser(recipe, secret=True)}"
        )

    strategies = [proxy] if recipe.search.proxy is not None else []
    strategies.append(all_trials)
    if is_shuffled(recipe):  # its bound is not known for Poisson sampling (`sweeps.config.random_stopping`)
        strategies.append(random_stopping)
    found, out_of_reach = [], {}
    for strategy in strategies:
        try:
            found.append(strategy())
        except UserError as error:
            out_of_reach[strategy.__name__] = error
    if not found:
        raise next(iter(out_of_reach.values()))
    return Prices(target, delta, tuple(sorted(found, key=lambda one: -one.epsilon_of_release)), tuple(out_of_reach))


def _by_ser(recipe: Recipe, *, secret: bool = False) -> str:
    """Return what chooses in a plan that searches on the private corpus: SER alone."""
    sampler = "random_stopping" if secret else "tpe"
    return chosen_in(recipe.search.model_copy(update={"objectives": ("ser",), "sampler": sampler}))


def is_shuffled(recipe: Recipe) -> bool:
    """Return True if every trial has shuffled epochs."""
    return recipe.edp.sampling == "shuffle" and "edp.sampling" not in recipe.space


def epsilon_of_best(recipe: Recipe) -> float:
    """Return an upper bound of the honest ε of the trial that a sweep with a secret number of trials releases.

    With shuffled epochs a trial is one Gaussian mechanism, for any decay, epochs and layer scales, and none costs more
    than the target. So the worst one is the Gaussian mechanism that costs the target.
    """
    assert recipe.edp.epsilon is not None, "`check_random_stopping` requires it"
    return _best_of(1 / gaussian_mu(recipe.edp.epsilon, recipe.edp.delta), recipe.edp.delta, recipe.search.trials)


def _best_of(z: float, delta: float, trials: int) -> float:
    """Return the ε of the best of a secret number of Gaussian mechanisms with noise multiplier `z`."""
    one: dict[str, Any] = {"micro_batches": 1, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}
    return random_stopping_epsilon(planned_ledger(EDPSpec(z0=z), epochs=1, **one), delta, trials, SHAPE)
