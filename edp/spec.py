"""What a private training run is: the settings of eDP-SGD, checked when they are built.

Symbols are those of Dupuy et al., "An Efficient DP-SGD Mechanism for Large Scale NLU Models", Algorithm 1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Decay = Literal["none", "linear", "exponential"]
Noise = Literal["corrected", "paper"]
Alpha = Literal["fixed", "public", "private", "paper"]
AlphaNoise = Literal["isotropic", "per_layer"]
Sampling = Literal["shuffle", "poisson"]
Unit = Literal["example", "micro_batch"]


class UserError(ValueError):
    """A mistake of the user's: its text is one line that names field, value and what is allowed."""


class Frozen(BaseModel):
    """Base of every spec: immutable, no unknown keys, no silent type conversion of strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EDPSpec(Frozen):
    """The mechanism of one run. Defaults are the corrected algorithm; the paper's ways have their names.

    Raises:
        pydantic.ValidationError: for a value outside what is allowed, or a `tau` that the decay does not use.
    """

    C: Annotated[float, Field(gt=0, description="clip of a micro-batch's scaled gradient, L2")] = 1.0
    z0: Annotated[float, Field(ge=0, description="noise multiplier of the first epoch")] = 1.0
    decay: Decay = "none"
    tau: Annotated[float, Field(ge=0, description="speed of the decay, per epoch")] = 0.0
    noise: Noise = "corrected"
    alpha: Alpha = "fixed"
    alpha_noise: AlphaNoise = "isotropic"
    sampling: Sampling = "shuffle"
    unit: Unit = "example"
    delta: Annotated[float, Field(gt=0, lt=1)] = 5e-4
    reproducible_noise: Annotated[
        int | None,
        Field(ge=0, description="seed of the noise, for tests and research: marks the run as not private"),
    ] = None

    @model_validator(mode="after")
    def _tau_belongs_to_a_decay(self) -> EDPSpec:
        if self.decay == "none" and self.tau != 0:
            raise ValueError(f"tau = {self.tau:g} has no meaning with decay none; leave it out or set it to 0")
        if self.decay != "none" and self.tau == 0:
            raise ValueError(f"tau is missing: decay {self.decay} needs tau > 0")
        return self
