"""One searched setting, and a space of them."""

from __future__ import annotations

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

if TYPE_CHECKING:  # a recipe is read, and refused, without it
    import optuna

Scalar = bool | int | float | str
Integer = int  # the field below hides the type's own name


class Dimension(Frozen):
    """One searched setting: exactly one of the four kinds. Ranges include both ends."""

    choice: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    int: tuple[Integer, Integer] | None = None

    @field_validator("uniform", "log_uniform", "int", mode="wrap")
    @classmethod
    def _low_and_high(cls, given: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """A range whose ends are named in what is wrong with it, rather than counted."""
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

    @model_validator(mode="after")
    def _one_kind(self) -> Dimension:
        kinds = {"choice": self.choice, "uniform": self.uniform, "log_uniform": self.log_uniform, "int": self.int}
        given = [kind for kind, value in kinds.items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"{len(given)} kinds given; allowed: one of {', '.join(kinds)}")
        return self

    def ask(self, trial: optuna.Trial, name: str) -> Any:
        """The sampler's value for this dimension, under `name`."""
        if self.choice is not None:
            return trial.suggest_categorical(name, list(self.choice))
        if self.int is not None:
            return trial.suggest_int(name, *self.int)
        if self.log_uniform is not None:
            return trial.suggest_float(name, *self.log_uniform, log=True)
        assert self.uniform is not None
        return trial.suggest_float(name, *self.uniform)

    def holds(self, value: Any) -> bool:
        """Whether `value` may be suggested."""
        if self.choice is not None:
            return any(value == c and isinstance(value, bool) == isinstance(c, bool) for c in self.choice)
        low, high = self.ends()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and (self.int is None or value == round(value))

    def text(self) -> str:
        """What may be suggested, in words."""
        if self.choice is not None:
            return ", ".join(str(c) for c in self.choice)
        return "{} to {}".format(*self.ends())

    def ends(self) -> tuple[Any, ...]:
        """Every choice, or both ends of the range."""
        return self.choice or self.int or self.log_uniform or self.uniform or ()


Space = dict[str, "Dimension | dict[str, Dimension]"]
