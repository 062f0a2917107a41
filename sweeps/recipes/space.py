"""The search space: what may vary between trials, and how a sampler is asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sweeps.recipes.dimension import Dimension, Space
from sweeps.recipes.shapes import SHAPE, Shapes, ask_shape

if TYPE_CHECKING:
    import optuna

PAPER_SPACE: Space = {
    "C": Dimension(choice=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0)),
    "z0": Dimension(log_uniform=(1e-6, 1.0)),
    "decay": Dimension(choice=("none", "linear", "exponential")),
    "tau": {
        "linear": Dimension(choice=(0.02, 0.05, 0.07, 0.1, 0.3, 0.5, 0.7, 0.9)),
        "exponential": Dimension(choice=(0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.35, 0.5)),
    },
}
"""Section 4.2 of the paper."""


def ask(space: Space, trial: optuna.Trial, shapes: Shapes = ()) -> dict[str, Any]:
    """A configuration from the sampler. `tau` is asked for only where the decay has one, under the decay's name.

    Args:
        shapes: what of method, batch and micro-batches fits together (`sweeps.recipes.shapes`), where several are
        searched.

    Returns:
        A value for each name of the space; `tau` = 0 for decay none, and no micro-batches of a shape that has none.
    """
    params: dict[str, Any] = ask_shape(space, shapes, trial)
    if shapes:
        space = {name: dimension for name, dimension in space.items() if name not in SHAPE}
    for name, dimension in sorted(space.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(dimension, Dimension):
            params[name] = dimension.ask(trial, name)
        else:
            decay = params["decay"]
            params[name] = dimension[decay].ask(trial, f"{name}_{decay}") if decay in dimension else 0.0
    return params


def bound_combinations(space: Space, shapes: Shapes = ()) -> Iterator[dict[str, Any]]:
    """Yield configurations that together hold every choice and every bound of every range, each with first choices.

    Args:
        shapes: as for `ask`; each is in one of the configurations.
    """
    plain = {n: d for n, d in space.items() if isinstance(d, Dimension) and not (shapes and n in SHAPE)}
    first = {name: d.ends()[0] for name, d in plain.items()}

    def with_taus(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        taus = space.get("tau")
        if not isinstance(taus, dict):
            yield params
            return
        decay = params["decay"]
        for tau in taus[decay].ends() if decay in taus else (0.0,):
            yield {**params, "tau": tau}

    fitting = shapes or ({},)
    ends = [{**fitting[0], name: end} for name, dimension in plain.items() for end in dimension.ends()]
    seen = set()
    for change in (*fitting, *ends):
        params = {**first, **change}
        # True and 1 are equal, and two choices.
        if (settings := frozenset((name, type(value), value) for name, value in params.items())) not in seen:
            seen.add(settings)
            yield from with_taus(params)
