"""The settings of eDP-SGD, validated when they are built.

Symbols are those of Dupuy et al., "An Efficient DP-SGD Mechanism for Large Scale NLU Models", Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

Decay = Literal["none", "linear", "exponential"]
Noise = Literal["corrected", "paper"]
Alpha = Literal["fixed", "none", "public", "private", "paper"]
AlphaNoise = Literal["isotropic", "per_layer"]
Sampling = Literal["shuffle", "poisson"]
Unit = Literal["example", "micro_batch", "user"]
Clipping = Literal["fixed", "automatic", "quantile"]
NoiseCorrelation = Literal["none", "banded"]

_BANDED_ALLOWS: dict[str, tuple[str, ...]] = {
    "sampling": ("shuffle",),
    "noise": ("corrected",),
    "alpha": ("fixed", "none", "public", "private"),
    "clip": ("fixed", "automatic"),
    "decay": ("none",),
}


class UserError(ValueError):
    """A mistake of the user's, in one line that names the field, its value and the allowed values."""


class Frozen(BaseModel):
    """Base of every spec: immutable, without unknown keys; numbers are no truth values, and whole ones are bounded."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
    max_bits: ClassVar[int] = 63
    """Bits of a whole number."""
    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Map of a setting to the (field, value) that enables it."""

    @model_validator(mode="before")
    @classmethod
    def _fields_are_known_and_true_is_no_number(cls, data: Any) -> Any:
        fields = cls.model_fields
        for field, value in data.items() if isinstance(data, dict) else ():
            if field not in fields:  # Pydantic's own error does not name the known ones
                about = {"field": str(field), "value": value, "known": ", ".join(fields)}
                raise PydanticCustomError("unknown_setting", "unknown setting {field}; allowed: {known}", about)
            given = value if isinstance(value, list | tuple) else (value,)
            if any(isinstance(one, bool) for one in given) and _numeric(cls, field):
                raise PydanticCustomError("truth_value", "a truth value is no number", {"field": field, "value": value})
        return data

    @model_validator(mode="after")
    def _settings_have_a_use(self) -> Self:
        for name, (field, owner) in self.belongs_to.items():
            value, chosen = getattr(self, name), getattr(self, field)
            if chosen != owner and value != type(self).model_fields[name].default:
                shown = f"{value:g}" if isinstance(value, float) else value
                raise ValueError(
                    f"{name} = {shown} has no meaning with {field} = {chosen}; "
                    f"allowed: {field} = {owner}, or leave it out"
                )
        return self

    @classmethod
    def for_its_choices(cls, settings: Mapping[str, Any], searched: Mapping[str, Collection[Any]]) -> dict[str, Any]:
        """Return `settings` without those that another value of a searched field enables.

        Args:
            searched: a field's values in other trials.
        """
        idle = {
            name
            for name, (field, owner) in cls.belongs_to.items()
            if owner in searched.get(field, ()) and settings.get(field) != owner
        }
        return {name: value for name, value in settings.items() if name not in idle}

    @field_validator("*")
    @classmethod
    def _can_be_counted(cls, value: Any) -> Any:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int) and one.bit_length() > cls.max_bits:
                raise ValueError(f"a whole number of {one.bit_length()} bits; allowed: at most {cls.max_bits}")
        return value


@cache
def _numeric(model: type[BaseModel], field: str) -> bool:
    """Return True if a field takes numbers, and no truth values."""
    known = model.model_fields.get(field)
    types = set(_types(known.annotation)) if known is not None else set()
    return bool not in types and not types.isdisjoint({int, float})


def _types(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all its parts."""
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)


Clip = Annotated[float, Field(gt=0, description="clip of a micro-batch's scaled gradient, L2")]
NoiseMultiplier = Annotated[float, Field(ge=0, description="noise multiplier of the first epoch")]
Tau = Annotated[float, Field(ge=0, description="speed of the decay, per epoch")]


class EDPOptions(Frozen):
    """Options of the mechanism, without its four numbers. Defaults are the corrected algorithm."""

    belongs_to: ClassVar[Mapping[str, tuple[str, str]]] = {
        "user_utterances": ("unit", "user"),
        "clip_quantile": ("clip", "quantile"),
        "band": ("noise_correlation", "banded"),
    }

    noise: Noise = "corrected"
    """corrected: as much as the formula of epsilon assumes; paper: that of the printed algorithm"""
    alpha: Alpha = "fixed"
    """source of the layers' scales, shares of the clip; fixed: the layers' sizes; none: no scales; public: a public
    gradient; private: noisy votes, which cost epsilon; paper: a private gradient, without a guarantee"""
    alpha_noise: AlphaNoise = "isotropic"
    """isotropic: the same noise in all coordinates; per_layer: in proportion to a layer's scale"""
    sampling: Sampling = "shuffle"
    unit: Unit = "example"
    """unit that epsilon protects; user: a micro-batch holds all examples of one user"""
    user_utterances: Annotated[int | None, Field(ge=1)] = None
    """with unit = user: maximum of a user's utterances that an epoch trains on, drawn anew in each; null: all"""
    clip: Clipping = "fixed"
    """fixed: gradients longer than C are cut to C; automatic: all are scaled to nearly C; quantile: C follows a
    quantile of their norms"""
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """with clip = quantile: share of micro-batches that are not scaled down"""
    noise_correlation: NoiseCorrelation = "none"
    """banded: each step takes back part of earlier steps' noise (`edp.noise.banded`); needs one order for all epochs"""
    band: Annotated[int | None, Field(ge=1, le=10_000)] = None
    """with noise_correlation = banded: steps that noise is correlated over, at most an epoch's; null: an epoch's, at
    most 16. Each but the first costs every worker the memory of the trained parameters"""
    delta: Annotated[float, Field(gt=0, lt=1)] = 5e-4
    """probability that the guarantee fails: below one in the training utterances"""
    reproducible_noise: Annotated[int | None, Field(ge=0, lt=2**32)] = None
    """seed of the noise, for tests and research; the run is then not private"""

    @property
    def fixed_order(self) -> bool:
        """True if the noise needs each unit in the same step of every epoch: one order for all epochs."""
        return self.noise_correlation != "none"

    @model_validator(mode="after")
    def _correlated_noise_has_a_price(self) -> EDPOptions:
        for name, allowed in _BANDED_ALLOWS.items() if self.noise_correlation == "banded" else ():
            value = getattr(self, name, None)
            if value is not None and value not in allowed:
                raise ValueError(
                    f"noise_correlation = banded has no price with {name} = {value}; "
                    f"allowed: {name} = {' or '.join(allowed)}, or noise_correlation = none"
                )
        return self


class EDPSpec(EDPOptions):
    """The mechanism of one run. Defaults are the corrected algorithm; `paper` selects the printed one.

    Examples:
        >>> EDPSpec(C=0.5, z0=2.0, decay="linear", tau=0.02).delta
        0.0005
        >>> EDPSpec(decay="linear")
        Traceback (most recent call last):
        ...
        pydantic_core._pydantic_core.ValidationError: 1 validation error for EDPSpec
          Value error, tau is missing: decay linear needs tau > 0 ...

    Raises:
        pydantic.ValidationError: for a value outside what is allowed, or a `tau` that the decay does not use.
    """

    C: Clip = 1.0
    z0: NoiseMultiplier = 1.0
    decay: Decay = "none"
    tau: Tau = 0.0

    @model_validator(mode="after")
    def _tau_belongs_to_a_decay(self) -> EDPSpec:
        if self.decay == "none" and self.tau != 0:
            raise ValueError(f"tau = {self.tau:g} has no meaning with decay none; leave it out or set it to 0")
        if self.decay != "none" and self.tau == 0:
            raise ValueError(f"tau is missing: decay {self.decay} needs tau > 0")
        return self
