"""Configurations that a search tries first: the recipe's own, or the paper's best guesses and one safe point."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from sweeps.config.parts import SearchSpec
from sweeps.config.space import SHAPE, Dimension, Shapes, Space, names_in_shapes

Params = dict[str, Any]

# Configurations whose ε by the paper's formula is that of its Table 1 (CLC on ATIS, BERT on Video). The table omits C.
_PAPER: dict[str, list[Params]] = {
    "clc": [
        {"C": 1.0, "z0": 0.008, "decay": "linear", "tau": 0.02},
        {"C": 1.0, "z0": 0.03, "decay": "none"},
    ],
    "bert": [
        {"C": 1.0, "z0": 1.0, "decay": "linear", "tau": 0.02},
        {"C": 1.0, "z0": 0.7, "decay": "none"},
    ],
}
_SAFE: Params = {"C": 0.1, "z0": 1.0, "decay": "none"}
"""A point with the most noise of the paper's space, and no decay."""


def initial_points(search: SearchSpec, space: Space, shapes: Shapes, kind: str, own: Params) -> list[Params]:
    """Return the configurations to try first, under the sampler's names (`tau_linear`).

    These are `search.points_to_evaluate`, if given. Otherwise they are the points above, moved to the nearest point of
    the recipe's space, for at most half of the trials, and without those whose decay is not searched. Other searched
    settings have the recipe's own values, which are the only point if no setting of the mechanism is searched.

    Args:
        own: the recipe's values of the searched settings, by dotted path.

    Raises:
        ValueError: for a point of `search.points_to_evaluate` that is not in the space.
    """
    if search.points_to_evaluate is not None:
        given = enumerate(search.points_to_evaluate)
        return [under_sampler_names(one, space, shapes, f"search.points_to_evaluate[{i}]") for i, one in given]
    found: list[Params] = []
    rest = {
        name: value
        for name, value in own.items()
        if name not in SHAPE and isinstance(dimension := space[name], Dimension) and dimension.holds(value)
    }
    for point in (*_PAPER[kind], _SAFE):
        moved = under_sampler_names(_moved(point, space), space, (), "point")
        if moved.keys() - {"decay"} and moved | rest not in found:
            found.append(moved | rest)
    if not found and rest:  # nothing of the mechanism is searched
        found.append(rest)
    return found[: search.trials // 2]


def fitted(points: Iterable[Params], space: Space, shapes: Shapes, most: int) -> list[Params]:
    """Return the distinct points of another sweep that fit a space, with their searched settings alone.

    A number is moved to the nearest one of the space. A point with a word that the space lacks is left out.

    Args:
        points: configurations, the best first.
        space: as for `initial_points`, and `shapes`.
        most: the largest number of points.
    """
    found: list[Params] = []
    for point in points:
        taken = {name: value for name, value in point.items() if name in space}
        if taken.get("decay") == "none":
            taken.pop("tau", None)
        moved = _moved(taken, space)
        if len(moved) < len(taken):
            continue
        try:
            under_sampler_names(moved, space, shapes, "point")
        except ValueError:  # of a shape that does not fit together here
            continue
        if moved and moved not in found:
            found.append(moved)
    return found[:most]


def _named(point: Params, space: dict[str, Any]) -> Iterator[tuple[str, Any, Dimension | None]]:
    """Yield each setting of `point` under the sampler's name, with its dimension."""
    for name, value in point.items():
        dimension = space.get(name)
        if isinstance(dimension, dict):
            decay = point.get("decay")
            yield f"{name}_{decay}", value, dimension.get(decay) if decay is not None else None
        else:
            yield name, value, dimension


def under_sampler_names(point: Params, space: Space, shapes: Shapes, place: str) -> Params:
    """Return a configuration under the names that the sampler is asked for.

    Args:
        space: as for `initial_points`, and `shapes`.
        place: where the configuration is given, for errors.

    Raises:
        ValueError: for a configuration that is not in the space.
    """
    found: Params = {}
    shape = {name: value for name, value in point.items() if name in SHAPE}
    if shapes and not any(shape.items() <= fitting.items() for fitting in shapes):
        raise ValueError(f"{place}: {shape} do not fit together; allowed: one of {list(shapes)}")
    if isinstance(space.get("tau"), dict) and "tau" in point and point.get("decay") not in ("linear", "exponential"):
        if point.get("decay") != "none" or point["tau"] != 0:
            raise ValueError(
                f"{place}.tau = {point['tau']!r}: it belongs to a decay; "
                "allowed: together with decay = linear or exponential"
            )
        # tau = 0 is how a trial without decay is shown, so a user may copy it from there.
        point = {name: value for name, value in point.items() if name != "tau"}
    for name, value, dimension in _named(point, space):
        path = f"{place}.{name}"
        if dimension is None:
            raise ValueError(
                f"{path} = {value!r} is not searched; allowed: {', '.join(space) or 'none, the space is empty'}"
            )
        if not dimension.holds(value):
            raise ValueError(f"{path} = {value!r} is not in the space; allowed: {dimension.text()}")
        if shapes and name in SHAPE:
            found |= dict.fromkeys(names_in_shapes(space, shapes, name, value), value)
        else:
            found[name] = value
    return found


def _moved(point: Params, space: dict[str, Any]) -> Params:
    """Return what is searched of `point`, with numbers moved into `space`; {} if a word of it is not in the space."""
    found: Params = {}
    for (name, value), (_, _, dimension) in zip(point.items(), _named(point, space), strict=True):
        if dimension is not None and not dimension.holds(value) and isinstance(value, str | bool):
            return {}
        if dimension is not None:
            found[name] = value if dimension.holds(value) else _nearest(float(value), dimension)
    return found


def _nearest(value: float, dimension: Dimension) -> Any:
    if dimension.choice is not None:
        numbers = [c for c in dimension.choice if isinstance(c, int | float)]
        near = (lambda c: abs(math.log(max(c, 1e-12) / value))) if value > 0 else (lambda c: abs(c - value))
        return min(numbers, key=near) if numbers else dimension.choice[0]
    low, high = dimension.ends()
    return min(max(value, low), high) if dimension.int is None else round(min(max(value, low), high))
