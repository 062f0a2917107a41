"""The search space: which settings vary between trials, and how a sampler is asked for them.

Methods, batches and micro-batches have to fit together: a batch size is a multiple of the number of micro-batches,
which is a multiple of the workers, and DP-SGD has no micro-batches of its own. If several of the three are searched,
the sampler is asked for the method, then for a batch size that fits it, then for micro-batches that fit both. If only
some of the choices fit, the sampler gets them under another name ("… of 8, 64"), because Optuna allows one set of
choices for a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from edp.spec import Frozen
from trainables.config import TrainingSpec

if TYPE_CHECKING:  # Optuna takes half a second to import, and a recipe is checked without it
    import optuna

Scalar = bool | int | float | str
Integer = int  # the field `int` below hides the type's own name


_KINDS = ("choice", "uniform", "log_uniform", "int")


class Dimension(Frozen):
    """One searched setting, of exactly one of the four kinds. Ranges include both ends."""

    choice: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    int: tuple[Integer, Integer] | None = None

    @field_validator("uniform", "log_uniform", "int", mode="wrap")
    @classmethod
    def _low_and_high(cls, given: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Check a range. Pydantic's own error would speak of tuples and their items."""
        numbers = "whole numbers" if info.field_name == "int" else "numbers"
        try:
            ends = check(given)
        except ValidationError:
            ends = (1, 0)
        if ends is not None and (not ends[0] < ends[1] or any(isinstance(end, bool) for end in given)):
            raise PydanticCustomError("range", f"allowed: [low, high], two {numbers} with low < high")
        if ends is not None and info.field_name == "log_uniform" and ends[0] <= 0:
            raise PydanticCustomError("range", "allowed: [low, high] with low > 0")
        return ends

    @field_validator("choice")
    @classmethod
    def _each_once(cls, given: tuple[Scalar, ...] | None) -> tuple[Scalar, ...] | None:
        """Drop what equals an earlier choice: 16.0 and "16" after 16, but not True after 1."""
        first: dict[Any, Scalar] = {}
        for value in given or ():
            number = None
            if not isinstance(value, bool):
                with suppress(ValueError):
                    number = float(value)
            first.setdefault((type(value), value) if number is None else number, value)
        return None if given is None else tuple(first.values())

    @model_validator(mode="after")
    def _one_kind(self) -> Dimension:
        given = sum(getattr(self, kind) is not None for kind in _KINDS)
        if given != 1:
            raise ValueError(f"{given} kinds given; allowed: one of {', '.join(_KINDS)}")
        return self

    def ask(self, trial: optuna.Trial, name: str) -> Any:
        """Ask the sampler for this dimension's value, under `name`."""
        if self.choice is not None:
            return trial.suggest_categorical(name, list(self.choice))
        if self.int is not None:
            return trial.suggest_int(name, *self.int)
        if self.log_uniform is not None:
            return trial.suggest_float(name, *self.log_uniform, log=True)
        assert self.uniform is not None
        return trial.suggest_float(name, *self.uniform)

    def holds(self, value: Any) -> bool:
        """Return True if `value` may be suggested."""
        if self.choice is not None:  # True equals 1, and is another choice
            return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in self.choice)
        low, high = self.ends()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and (self.int is None or value == round(value))

    def text(self) -> str:
        """Return the choices, or the range, in words."""
        if self.choice is not None:
            return ", ".join(str(c) for c in self.choice)
        return "{} to {}".format(*self.ends())

    def ends(self) -> tuple[Any, ...]:
        """Return every choice, or both ends of the range."""
        return self.choice or self.int or self.log_uniform or self.uniform or ()


Space = dict[str, "Dimension | dict[str, Dimension]"]

PAPER_SPACE: Space = {
    "C": Dimension(choice=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0)),
    "z0": Dimension(log_uniform=(1e-6, 1.0)),
    "decay": Dimension(choice=("none", "linear", "exponential")),
    "tau": {
        "linear": Dimension(choice=(0.02, 0.05, 0.07, 0.1, 0.3, 0.5, 0.7, 0.9)),
        "exponential": Dimension(choice=(0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.35, 0.5)),
    },
}
"""The space of the paper's section 4.2."""

SHAPE = ("training.method", "training.batch_size", "training.micro_batches")

Shape = dict[str, Any]
Shapes = tuple[Shape, ...]


def ask(space: Space, trial: optuna.Trial, shapes: Shapes = ()) -> dict[str, Any]:
    """Ask the sampler for a configuration. It is asked for `tau` only if the decay has one, under the decay's name.

    Args:
        shapes: the combinations of method, batch and micro-batches that fit together; () unless several are searched.

    Returns:
        A value for each name of the space: `tau` is 0 for decay none, and a shape without micro-batches omits them.
    """
    params: dict[str, Any] = {}
    if shapes:
        for name in SHAPE:
            fitting = _left(shapes, params, name)
            if len(fitting) == 1:
                params[name] = fitting[0]
            elif fitting:
                params[name] = trial.suggest_categorical(_asked_as(space, name, fitting), fitting)
        space = {name: dimension for name, dimension in space.items() if name not in SHAPE}
    for name, dimension in sorted(space.items(), key=lambda item: isinstance(item[1], dict)):
        if isinstance(dimension, Dimension):
            params[name] = dimension.ask(trial, name)
        else:
            decay = params["decay"]
            params[name] = dimension[decay].ask(trial, f"{name}_{decay}") if decay in dimension else 0.0
    return params


def fitting_shapes(training: TrainingSpec, space: Mapping[str, Dimension | dict[str, Dimension]]) -> Shapes:
    """Return the combinations that fit together; () if fewer than two of `SHAPE` are searched, or one over a range.

    Raises:
        ValueError: for a choice that fits no other.
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


def names_in_shapes(space: Mapping[str, Any], shapes: Shapes, name: str, value: Any) -> Iterator[str]:
    """Yield the names under which a sampler may be asked for `name` with `value` among its choices."""
    seen = set()
    for shape in shapes:
        before = {key: shape[key] for key in SHAPE[: SHAPE.index(name)] if key in shape}
        fitting = _left(shapes, before, name)
        if len(fitting) > 1 and value in fitting:
            seen.add(_asked_as(space, name, fitting))
    yield from sorted(seen)


def _left(shapes: Shapes, chosen: Shape, name: str) -> list[Any]:
    """Return the values of `name` in the shapes that agree with the settings chosen so far."""
    fitting = [shape for shape in shapes if all(shape.get(key) == value for key, value in chosen.items())]
    return list(dict.fromkeys(shape[name] for shape in fitting if name in shape))


def _asked_as(space: Mapping[str, Any], name: str, fitting: list[Any]) -> str:
    """Return the sampler's name for `name` with the choices `fitting`."""
    return name if len(fitting) == len(space[name].choice) else f"{name} of {', '.join(map(str, fitting))}"


def bound_combinations(space: Space, shapes: Shapes = ()) -> Iterator[dict[str, Any]]:
    """Yield configurations that together contain every choice and every bound of every range.

    Each one changes one setting of the first configuration, which has all first choices and lower bounds.

    Args:
        shapes: as for `ask`; each of them is in one of the configurations.
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
        # True and 1 are equal in Python, but two choices.
        if (settings := frozenset((name, type(value), value) for name, value in params.items())) not in seen:
            seen.add(settings)
            yield from with_taus(params)
