"""What choosing a configuration costs, before anything runs: one ε for search and release together.

| way | what is released | what choosing costs |
|---|---|---|
| `all_trials` | the best trial | all trials, composed |
| `random_stopping` | the best trial | Papernot & Steinke (2022): a secret number of trials, only the best is seen |
| `proxy` | a training on everything | nothing: trials on a public corpus |

Each way's noise is solved for, so that all of it together costs the target. The cheapest way leaves most of that to
what is released.
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
from sweeps.config.random_stopping import SHAPE
from sweeps.config.recipe import Recipe, example_params
from sweeps.config.target_epsilon import schedule_of
from trainables.config import TrialSpec

_SCORES = "validation scores, by which it is chosen, are not covered"


@dataclass(frozen=True)
class Way:
    """One valid way to choose and release at a total ε."""

    name: str
    epsilon_of_choice: float
    """Of what is run to choose; where the release is one of the trials it is in it."""
    epsilon_of_release: float
    """Of the training that is released, alone: what a trial of this way has to be run at."""
    epsilon_total: float
    trials: int
    covers: str


@dataclass(frozen=True)
class Prices:
    """The ways that a recipe has to `target`, the cheapest one first."""

    target: float
    delta: float
    ways: tuple[Way, ...]
    out_of_reach: tuple[str, ...] = ()
    """Those that no noise brings to `target`."""

    def document(self) -> dict[str, Any]:
        """What `edp-sweep plan --json` prints."""
        return {**asdict(self), "cheapest": self.ways[0].name}


def price(recipe: Recipe, units: int, target: float) -> Prices:
    """Prices all ways for a recipe on so many private training utterances, or users where they are the unit.

    With shuffled epochs a training is one Gaussian mechanism, whatever the configuration, and so are prices exact. With
    Poisson sampling they are those of the first values of the space.

    Raises:
        UserError: where no noise meets the target in any way.
    """
    if not 0 < target < math.inf:
        raise UserError(f"epsilon = {target:g}: allowed: positive and finite")
    spec, delta, trials = _first(recipe), recipe.edp.delta, recipe.search.trials
    schedule = schedule_of(spec, units)

    def training(z0: float) -> Composition:
        noisy = spec.edp.model_copy(update={"z0": z0})
        return composition_of(planned_ledger(noisy, epochs=spec.training.epochs, **schedule))

    def cost(*parts: Composition) -> float:
        return epsilon_of(compose(parts), delta)

    def proxy() -> Way:
        alone = cost(training(calibrate_noise(lambda z: cost(training(z)), target)))
        return Way("proxy", 0.0, alone, alone, trials, "everything: what it is chosen by is public")

    def all_trials() -> Way:
        z0 = calibrate_noise(lambda z: cost(*[training(z)] * trials), target)
        total = cost(*[training(z0)] * trials)
        return Way("all_trials", total, cost(training(z0)), total, trials, f"all trainings; {_SCORES}")

    def released(z: float) -> float:
        one = cost(Composition(mu=1 / z))
        calibrate_noise(lambda z0: cost(training(z0)), one)  # what a training has besides its noise may cost more
        return one

    def random_stopping() -> Way:
        z = calibrate_noise(lambda z: _best_of(z, delta, trials), target)
        total, one = _best_of(z, delta, trials), released(z)
        return Way("random_stopping", total, one, total, trials, f"the one that is released; {_SCORES}")

    found = [proxy] if recipe.search.proxy is not None else []
    found.append(all_trials)
    if is_shuffled(recipe):  # its bound is known for them only
        found.append(random_stopping)
    ways, out_of_reach = [], {}
    for way in found:
        try:
            ways.append(way())
        except UserError as error:
            out_of_reach[way.__name__] = error
    if not ways:
        raise next(iter(out_of_reach.values()))
    return Prices(target, delta, tuple(sorted(ways, key=lambda way: -way.epsilon_of_release)), tuple(out_of_reach))


def is_shuffled(recipe: Recipe) -> bool:
    """Whether every trial has shuffled epochs."""
    return recipe.edp.sampling == "shuffle" and "edp.sampling" not in recipe.space


def epsilon_of_best(recipe: Recipe) -> float:
    """Return the honest ε of the trial that a secret number of trials releases, for any candidate of the space.

    With shuffled epochs a candidate is one Gaussian mechanism, for any decay, epochs and layer scales, and none costs
    more than the target: the worst is the Gaussian mechanism that costs the target.
    """
    assert recipe.edp.epsilon is not None, "checked with the recipe"
    return _best_of(1 / gaussian_mu(recipe.edp.epsilon, recipe.edp.delta), recipe.edp.delta, recipe.search.trials)


def _best_of(z: float, delta: float, trials: int) -> float:
    one: dict[str, Any] = {"micro_batches": 1, "steps_per_epoch": 1, "rate": 1.0, "single_example": True}
    return random_stopping_epsilon(planned_ledger(EDPSpec(z0=z), epochs=1, **one), delta, trials, SHAPE)


def _first(recipe: Recipe) -> TrialSpec:
    """A trial of the first values of the space, its noise to be solved for."""
    return recipe.trial({**example_params(recipe), "z0": 1.0})
