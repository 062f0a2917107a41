"""The ledger: *what happened*. The accountants in `edp.accounting` say what it costs.

The hook records one step at a time; steps of an epoch under the same mechanism become one entry, so a ledger of a
million steps stays small. ε is computed from a ledger, never from a recipe; before a run, from `planned_ledger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from edp.mechanism import Mechanism, mechanism_of
from edp.spec import EDPSpec, Frozen


class LedgerEntry(Frozen):
    """`steps` steps of one epoch under one mechanism."""

    max_bits: ClassVar[int] = 1024  # a rate of one step in 1e300 examples has a price too

    epoch: Annotated[int, Field(ge=0)]
    steps: Annotated[int, Field(ge=1)]
    mechanism: Mechanism

    @property
    def noise_std(self) -> float:
        """Standard deviation of the Gaussian noise on each coordinate of the mean gradient that the optimiser got.

        In the gradient's own unit: `C·z/N`, or `C·z/N^1.5` for the paper's noise, the same for all layers. With
        `alpha_noise = per_layer` layer k has `α_k` times that; this is the value for the largest `α_k`. With
        `clip = quantile` it moves with the clip; this is the value of the run's first step at this z. For correlated
        noise this is the value of one step after many; later steps take back part of it, so sums have less.
        """
        m = self.mechanism
        return m.noise_std() * (m.max_alpha if m.alpha_noise == "per_layer" else 1.0)

    # Written for readers of the file, and ignored when it is read back: it follows from the mechanism.
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
    """A private estimate of the layer scales: one more Gaussian mechanism, of noise multiplier `z`."""

    z: Annotated[float, Field(gt=0)]


class Ledger(Frozen):
    """Everything that touched the released weights. `private` is False for plain SGD, without noise.

    A run whose end may depend on its own outputs guarantees what its whole plan does, and no less
    (`docs/privacy.md`, *A training that ends early*). `completed` adds the rest of the plan.

    Examples:
        >>> step = Mechanism(C=1.0, z=1.0, N=8)
        >>> ledger = Ledger().record(0, step).record(0, step).record(1, step)
        >>> [(entry.epoch, entry.steps) for entry in ledger.entries], ledger.steps
        ([(0, 2), (1, 1)], 3)
        >>> ledger.until(1).steps  # of the model after one epoch
        2
        >>> stopped = ledger.until(1).completed(ledger)  # by somebody who saw that model
        >>> stopped.steps, [entry.epoch for entry in stopped.not_executed]
        (2, [1])
        >>> Ledger.model_validate_json(ledger.model_dump_json()) == ledger
        True
    """

    private: bool = True
    alpha_release: AlphaRelease | None = None
    entries: tuple[LedgerEntry, ...] = ()
    not_executed: tuple[LedgerEntry, ...] = ()
    """Steps that were planned and did not run. They count as if they had."""
    discarded: tuple[Ledger, ...] = ()
    """Steps that ran, or were about to, when a process died and its weights were lost: one ledger a death. They touched
    no released weights, and count as if they had."""
    most_of_a_user: Annotated[int | None, Field(ge=1)] = None
    """The most training examples of one user; None: users are not known."""

    def until(self, epoch: int) -> Ledger:
        """Return what was executed before `epoch`, counted from 0: the steps of the model after so many epochs."""
        kept = tuple(entry for entry in self.entries if entry.epoch < epoch)
        return self.model_copy(update={"entries": kept, "not_executed": ()})

    def completed(self, plan: Ledger) -> Ledger:
        """Return this ledger with the steps of `plan` that it lacks as `not_executed`.

        Its ε is that of the plan and of all that was discarded, from the first step on and however the run ends.
        """
        return self.model_copy(update={"not_executed": _beyond(plan.entries, self.entries)})

    @property
    def executed(self) -> Ledger:
        """The ledger of the steps that ran."""
        return self.model_copy(update={"not_executed": ()})

    @property
    def counted(self) -> tuple[LedgerEntry, ...]:
        """The entries that have a price, besides `discarded`: those that ran, and then the rest of the plan."""
        return (*self.entries, *self.not_executed)

    def record(self, epoch: int, mechanism: Mechanism) -> Ledger:
        """Return the ledger after one more step; equal neighbours of an epoch become one entry with more steps."""
        if self.entries:
            last = self.entries[-1]
            if last.epoch == epoch and last.mechanism == mechanism:
                longer = last.model_copy(update={"steps": last.steps + 1})
                return self.model_copy(update={"entries": (*self.entries[:-1], longer)})
        entry = LedgerEntry(epoch=epoch, steps=1, mechanism=mechanism)
        return self.model_copy(update={"entries": (*self.entries, entry)})

    def after_loss(self, written: Ledger) -> Ledger:
        """Return this ledger, of the weights that were kept, with all other steps of `written` as discarded.

        Args:
            written: the ledger that was saved last, before its last epochs began (`EDPHook.planned`).
        """
        release = written.alpha_release if self.alpha_release is None else None
        lost = Ledger(alpha_release=release, entries=_beyond(written.entries, self.entries))
        return self.model_copy(update={"discarded": (*written.discarded, *([lost] if lost != Ledger() else []))})

    @property
    def steps(self) -> int:
        """Number of optimiser steps."""
        return sum(entry.steps for entry in self.entries)


def _beyond(entries: Iterable[LedgerEntry], taken: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Return the steps of `entries` without the first ones of each epoch, as many as `taken` has of it."""
    left = Counter[int]()
    for entry in taken:
        left[entry.epoch] += entry.steps
    found = []
    for entry in entries:
        ours = min(entry.steps, left[entry.epoch])
        left[entry.epoch] -= ours
        if entry.steps > ours:
            found.append(entry.model_copy(update={"steps": entry.steps - ours}))
    return tuple(found)


def planned_ledger(
    spec: EDPSpec,
    *,
    epochs: int,
    micro_batches: int,
    steps_per_epoch: int,
    rate: float,
    single_example: bool,
    max_alpha: float = 1.0,
    alpha_z: float = PRIVATE_ALPHA_Z,
) -> Ledger:
    """Return the ledger of a run of `spec` before it starts, one entry an epoch: its ε is known in advance.

    Examples:
        >>> planned = planned_ledger(
        ...     EDPSpec(z0=1.0), epochs=2, micro_batches=8, steps_per_epoch=10, rate=0.1, single_example=False
        ... )
        >>> [(entry.epoch, entry.steps, round(entry.noise_std, 3)) for entry in planned.entries]
        [(0, 10, 0.125), (1, 10, 0.125)]

    Args:
        epochs: of the run; 0 gives an empty ledger.
        micro_batches: N, over all workers.
        steps_per_epoch: optimiser steps.
        rate: share of the training set that a step holds (shuffle), or is expected to hold (Poisson).
        single_example: True if no micro-batch holds more than one example.
        max_alpha: largest layer scale; the hook's scales are normalised to 1.
        alpha_z: noise multiplier of the estimate of the layer scales, if `spec.alpha` is private.

    Raises:
        UserError: for noise correlated over more steps than an epoch has.
        pydantic.ValidationError: for a value that a ledger does not allow.
    """

    def mechanism(epoch: int) -> Mechanism:
        return mechanism_of(
            spec, epoch, micro_batches=micro_batches, rate=rate, single_example=single_example, max_alpha=max_alpha
        )

    entries = tuple(LedgerEntry(epoch=t, steps=steps_per_epoch, mechanism=mechanism(t)) for t in range(epochs))
    release = AlphaRelease(z=alpha_z) if spec.alpha == "private" and entries else None
    return Ledger(alpha_release=release, entries=entries)
