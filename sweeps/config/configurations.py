"""The configurations of a search space: which of them are one and the same, and all of a finite space."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError

from edp.spec import UserError
from sweeps.config.recipe import Recipe
from sweeps.config.space import SHAPE, Dimension

Params = dict[str, Any]

_MOST = 20_000
"""Most combinations of settings of a space that is listed, which takes seconds. A search of a larger one never ends
it."""


def identity(recipe: Recipe, params: Params) -> str:
    """Return a text that two configurations share if they train the same model.

    Settings without effect on a trial, such as the momentum of another optimiser, are no part of it.

    Args:
        params: a value for each searched name, and perhaps more, such as a z0 that was solved for.
    """
    space = recipe.dimensions
    searched = {name: value for name, value in params.items() if name in space}
    noise = {} if "z0" in space or recipe.edp.z0 is not None else {"z0": 1.0}
    try:
        spec = recipe.trial(searched | noise).model_dump(mode="json")
    except ValidationError:  # it will be refused
        spec = searched
    return json.dumps([spec, searched.get("epsilon")], sort_keys=True)


def all_configurations(recipe: Recipe) -> dict[str, Params] | None:
    """Return the distinct configurations of a space by `identity`; None for a space that is infinite, or large."""
    space, shapes = recipe.dimensions, recipe.shapes
    tau = space.get("tau")
    values, taus = {}, {}
    for name, dimension in space.items():
        if isinstance(dimension, Dimension) and not (shapes and name in SHAPE):
            values[name] = _values(dimension)
    for decay, dimension in tau.items() if isinstance(tau, dict) else ():
        taus[decay] = _values(dimension)
    sizes = [len(one) for one in values.values()]
    most = prod(sizes) * max(1, len(shapes)) * max([1, *(len(one) for one in taus.values())])
    if most > _MOST or not all(sizes) or not all(taus.values()):
        return None
    found: dict[str, Params] = {}
    for shape, *chosen in product(shapes or ({},), *values.values()):
        params = {**shape, **dict(zip(values, chosen, strict=True))}
        of_decay = taus.get(str(params.get("decay", recipe.edp.decay)), (0.0,))
        for with_tau in [{"tau": one} for one in of_decay] if isinstance(tau, dict) else [{}]:
            found.setdefault(identity(recipe, params | with_tau), params | with_tau)
    return found


def trials_that_run(recipe: Recipe, wanted: int, say: Callable[[str], None], already: int = 0) -> int:
    """Return the number of trials that run: no more than the space has configurations, since each runs once.

    Args:
        say: called with a line if they are fewer than `wanted`.
        already: trials that an earlier command asked for.

    Raises:
        UserError: if those were all.
    """
    every = all_configurations(recipe)
    if every is None or wanted <= len(every):
        return wanted
    if already >= len(every):
        raise UserError(
            f"trials = {wanted - already}: all {len(every)} configurations of the space have run, or will; "
            "allowed: none; `confirm` trains the best ones again"
        )
    say(f"the space has {len(every)} configurations, and each runs once: {len(every)} trials instead of {wanted}")
    return len(every)


def _values(dimension: Dimension) -> Sequence[Any]:
    """Return all values; () for a range that has infinitely many."""
    if dimension.choice is not None:
        return dimension.choice
    return range(dimension.int[0], dimension.int[1] + 1) if dimension.int is not None else ()
