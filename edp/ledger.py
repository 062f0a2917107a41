"""What was executed. The ledger says *what happened*; the accountants in `edp.epsilon` say what it costs.

The training loop writes one step at a time; steps of an epoch that ran under the same mechanism are condensed
into one entry, so a ledger of a million steps stays small. ε is computed from here, never from a recipe.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from edp.banded import band_of
from edp.decay import noise_multiplier
from edp.mechanism import count_noise_std, noise_std
from edp.spec import Alpha, AlphaNoise, Clipping, EDPSpec, Frozen, Noise, NoiseCorrelation, Sampling, Unit


class Mechanism(Frozen):
    """One step's Gaussian mechanism, as executed: everything that an accountant needs and nothing else."""

    C: Annotated[float, Field(gt=0)]
    """Clip. With `clip = quantile` it moves from step to step, and this is what the run began with: noise moves with
    it, so that no guarantee depends on it."""
    z: Annotated[float, Field(ge=0)]
    """Noise multiplier z_t of Algorithm 1; a micro-batch's noise is drawn from it as `noise` says."""
    N: Annotated[int, Field(ge=1)]
    """Micro-batches a step: what the sum is divided by."""
    noise: Noise = "corrected"
    alpha: Alpha = "fixed"
    alpha_noise: AlphaNoise = "isotropic"
    max_alpha: Annotated[float, Field(gt=0)] = 1.0
    unit: Unit = "example"
    sampling: Sampling = "shuffle"
    rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that an example is in a step (Poisson), or the share of the data a step holds (shuffle)."""
    single_example: bool = False
    """True when no micro-batch held more than one example: DP-SGD."""
    replayable: bool = False
    """True when the noise came from a seed that somebody knows: no guarantee."""
    clip: Clipping = "fixed"
    count_std: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation, in micro-batches, of the noise on the count that moves the clip; used by `clip = quantile`
    alone, which guarantees nothing at 0."""
    correlation: NoiseCorrelation = "none"
    """`banded`: noise was correlated over `band` steps, and a unit in the same step of every epoch (`edp.banded`)."""
    band: Annotated[int, Field(ge=1)] = 1


def mechanism_of(
    spec: EDPSpec,
    epoch: int,
    *,
    micro_batches: int,
    rate: float,
    single_example: bool,
    max_alpha: float = 1.0,
) -> Mechanism:
    """What `spec` makes of a step of epoch `epoch`, counted from 0; arguments as for `edp.epsilon.planned_ledger`.

    Raises:
        UserError: for a band that is longer than an epoch.
        pydantic.ValidationError: for a value that a ledger does not allow.
    """
    return Mechanism(
        C=spec.C,
        z=noise_multiplier(spec, epoch),
        N=micro_batches,
        noise=spec.noise,
        alpha=spec.alpha,
        alpha_noise=spec.alpha_noise,
        max_alpha=max_alpha,
        unit=spec.unit,
        sampling=spec.sampling,
        rate=rate,
        single_example=single_example,
        replayable=spec.reproducible_noise is not None,
        clip=spec.clip,
        count_std=count_noise_std(micro_batches) if spec.clip == "quantile" else 0.0,
        correlation=spec.noise_correlation,
        band=band_of(spec, rate),
    )


class LedgerEntry(Frozen):
    """`steps` steps of one epoch under one mechanism."""

    epoch: Annotated[int, Field(ge=0)]
    steps: Annotated[int, Field(ge=1)]
    mechanism: Mechanism

    @property
    def noise_std(self) -> float:
        """Standard deviation of the Gaussian noise on each coordinate of the mean gradient that the optimiser got.

        In the gradient's own unit: `C·z/N`, or `C·z/N^1.5` for the paper's noise, the same for all layers. With
        `alpha_noise = per_layer` layer k has `α_k` times that; here it is the layer's with the largest `α_k`. With
        `clip = quantile` it moves with the clip, and this is that of the run's first step at this z. Where noise is
        correlated this is one step's after many; steps take back part of it from each other, so sums of it have less.
        """
        m = self.mechanism
        return noise_std(m) * (m.max_alpha if m.alpha_noise == "per_layer" else 1.0)

    # Written for whoever reads the file, and not read back: it follows from the mechanism.
    @model_serializer(mode="wrap")
    def _with_noise_std(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**fields(self), "noise_std": self.noise_std}

    @model_validator(mode="before")
    @classmethod
    def _without_noise_std(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if k != "noise_std"} if isinstance(data, dict) else data


PRIVATE_ALPHA_Z = 10.0
"""Noise multiplier of the private estimate of the layer scales: costs a hundredth of an epoch at z = 1."""


class AlphaRelease(Frozen):
    """A private estimate of the layer scales: one Gaussian mechanism more, of noise multiplier `z`."""

    z: Annotated[float, Field(gt=0)]


class Ledger(Frozen):
    """Everything that touched the released weights. `private` is False for plain SGD, without noise."""

    private: bool = True
    alpha_release: AlphaRelease | None = None
    entries: tuple[LedgerEntry, ...] = ()

    def until(self, epoch: int) -> Ledger:
        """What was executed before `epoch` (counted from 0): the ledger of the model after so many epochs."""
        return self.model_copy(update={"entries": tuple(entry for entry in self.entries if entry.epoch < epoch)})

    def record(self, epoch: int, mechanism: Mechanism) -> Ledger:
        """The ledger after one more step; equal neighbours of an epoch become one entry with more steps."""
        if self.entries:
            last = self.entries[-1]
            if last.epoch == epoch and last.mechanism == mechanism:
                longer = last.model_copy(update={"steps": last.steps + 1})
                return self.model_copy(update={"entries": (*self.entries[:-1], longer)})
        entry = LedgerEntry(epoch=epoch, steps=1, mechanism=mechanism)
        return self.model_copy(update={"entries": (*self.entries, entry)})

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return sum(entry.steps for entry in self.entries)
