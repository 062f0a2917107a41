"""Methods, batches and micro-batches beside each other in one search: a sampler is asked only for what fits together.

A batch is a multiple of its micro-batches, which are a multiple of the workers; DP-SGD has no use for micro-batches of
its own. Where several of the three are searched, the sampler is asked for the method, then for a batch size that fits
it, then for micro-batches that fit both. What is left to choose from goes by a name of its own ("… of 8, 64") where it
is not all that is searched: to Optuna, a name has one set of choices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sweeps.recipes.dimension import Dimension
from trainables.spec import TrainingSpec

if TYPE_CHECKING:
    import optuna

SHAPE = ("training.method", "training.batch_size", "training.micro_batches")

Shape = dict[str, Any]
Shapes = tuple[Shape, ...]


def fitting_shapes(training: TrainingSpec, space: Mapping[str, Dimension | dict[str, Dimension]]) -> Shapes:
    """The combinations that fit together; () where fewer than two of `SHAPE` are searched, or one over a range.

    Raises:
        ValueError: for a choice that fits nothing.
    """
    choices = {name: choice for name in SHAPE if (choice := getattr(space.get(name), "choice", None)) is not None}
    if len(choices) < 2 or any(name in space and name not in choices for name in SHAPE):
        return ()
    found: list[Shape] = []
    used: set[tuple[str, Any]] = set()
    for values in product(*choices.values()):
        shape = dict(zip(choices, values, strict=True))
        settings = {name.removeprefix("training."): value for name, value in shape.items()}
        try:
            TrainingSpec.model_validate(training.model_dump() | settings)
        except ValidationError:
            continue
        used |= set(shape.items())
        if settings.get("method", training.method) == "dpsgd":
            shape.pop("training.micro_batches", None)
        if shape not in found:
            found.append(shape)
    for name, choice in choices.items():
        for value in choice:
            if (name, value) not in used:
                raise ValueError(
                    f"space.{name}: {value} fits none of the others; allowed: a batch size that is a multiple of "
                    f"micro_batches, and micro_batches that are a multiple of workers = {training.workers}"
                )
    return tuple(found)


def ask_shape(space: Mapping[str, Any], shapes: Shapes, trial: optuna.Trial) -> Shape:
    """One of `shapes`, from the sampler."""
    params: Shape = {}
    for name in SHAPE:
        fitting = _left(shapes, params, name)
        if len(fitting) == 1:
            params[name] = fitting[0]
        elif fitting:
            params[name] = trial.suggest_categorical(_asked_as(space, name, fitting), fitting)
    return params


def names_in_shapes(space: Mapping[str, Any], shapes: Shapes, name: str, value: Any) -> Iterator[str]:
    """The names under which a sampler may be asked for `name` where `value` is among its choices."""
    seen = set()
    for shape in shapes:
        before = {key: shape[key] for key in SHAPE[: SHAPE.index(name)] if key in shape}
        fitting = _left(shapes, before, name)
        if len(fitting) > 1 and value in fitting:
            seen.add(_asked_as(space, name, fitting))
    yield from sorted(seen)


def _left(shapes: Shapes, chosen: Shape, name: str) -> list[Any]:
    fitting = [shape for shape in shapes if all(shape.get(key) == value for key, value in chosen.items())]
    return list(dict.fromkeys(shape[name] for shape in fitting if name in shape))


def _asked_as(space: Mapping[str, Any], name: str, fitting: list[Any]) -> str:
    return name if len(fitting) == len(space[name].choice) else f"{name} of {', '.join(map(str, fitting))}"
