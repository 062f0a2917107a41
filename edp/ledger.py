"""What was executed. The ledger says *what happened*; the accountants in `edp.accounting` say what it costs.

The training loop writes one step at a time; steps of an epoch that ran under the same mechanism are condensed
into one entry, so a ledger of a million steps stays small. ε is computed from here, never from a recipe.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from edp.mechanism import Mechanism
from edp.spec import Frozen


class LedgerEntry(Frozen):
    """`steps` steps of one epoch under one mechanism."""

    most_bits: ClassVar[int] = 1024  # one step in 1e300 examples is accounted for too

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
        return m.noise_std() * (m.max_alpha if m.alpha_noise == "per_layer" else 1.0)

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
    """Everything that touched the released weights. `private` is False for plain SGD, without noise.

    Examples:
        >>> step = Mechanism(C=1.0, z=1.0, N=8)
        >>> ledger = Ledger().record(0, step).record(0, step).record(1, step)
        >>> [(entry.epoch, entry.steps) for entry in ledger.entries], ledger.steps
        ([(0, 2), (1, 1)], 3)
        >>> ledger.until(1).steps  # of the model after one epoch
        2
        >>> Ledger.model_validate_json(ledger.model_dump_json()) == ledger
        True
    """

    private: bool = True
    alpha_release: AlphaRelease | None = None
    entries: tuple[LedgerEntry, ...] = ()
    discarded: tuple[Ledger, ...] = ()
    """What was run, or was about to, when a process died, and was thrown away with its weights: one ledger a time. It
    touched no released weights, and counts as if it had."""
    most_of_a_user: Annotated[int | None, Field(ge=1)] = None
    """How many of the training examples are one user's at most; None: users are not known."""

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

    def after_loss(self, written: Ledger) -> Ledger:
        """This ledger, of weights that were kept, when all that `written` has besides was lost with its weights.

        Args:
            written: what was written down last, before its last epochs began.
        """
        kept = Counter[int]()
        for entry in self.entries:
            kept[entry.epoch] += entry.steps
        entries = []
        for entry in written.entries:
            ours = min(entry.steps, kept[entry.epoch])
            kept[entry.epoch] -= ours
            if entry.steps > ours:
                entries.append(entry.model_copy(update={"steps": entry.steps - ours}))
        release = written.alpha_release if self.alpha_release is None else None
        lost = Ledger(alpha_release=release, entries=tuple(entries))
        return self.model_copy(update={"discarded": (*written.discarded, *([lost] if lost != Ledger() else []))})

    @property
    def steps(self) -> int:
        """Optimiser steps in all."""
        return sum(entry.steps for entry in self.entries)
