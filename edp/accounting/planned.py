"""The ledger of a run that has not begun, by which its ε is known in advance."""

from __future__ import annotations

from edp.ledger import PRIVATE_ALPHA_Z, AlphaRelease, Ledger, LedgerEntry
from edp.mechanism import Mechanism, mechanism_of
from edp.spec import EDPSpec


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
    """The ledger of a run of `spec` before it starts: one entry an epoch, so that ε is known in advance.

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
        single_example: whether no micro-batch holds more than one example.
        max_alpha: largest layer scale; the hook's scales are normalised to 1.
        alpha_z: noise multiplier of the estimate of the layer scales, where `spec.alpha` is private.

    Raises:
        pydantic.ValidationError: for a value that a ledger does not allow.
    """

    def mechanism(epoch: int) -> Mechanism:
        return mechanism_of(
            spec,
            epoch,
            micro_batches=micro_batches,
            rate=rate,
            single_example=single_example,
            max_alpha=max_alpha,
        )

    entries = tuple(LedgerEntry(epoch=t, steps=steps_per_epoch, mechanism=mechanism(t)) for t in range(epochs))
    release = AlphaRelease(z=alpha_z) if spec.alpha == "private" and entries else None
    return Ledger(alpha_release=release, entries=entries)
