"""What correlated noise assumes of the steps that were executed, checked before they are priced."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from edp.sampling import steps_at_rate
from edp.spec import UserError

if TYPE_CHECKING:
    from edp.ledger import LedgerEntry


def check_participation(entries: Sequence[LedgerEntry]) -> None:
    """Checks of executed steps with correlated noise that none took a unit in twice within the band.

    Epochs are walked in one order: those of one unit are as far apart as the steps that were executed between them.

    Raises:
        UserError: where the guarantee above does not hold, with the reason.
    """
    entries = [entry for entry in entries if entry.mechanism.correlation == "banded"]
    if not entries:
        return
    m = entries[0].mechanism
    if any(entry.mechanism != m for entry in entries):
        raise UserError(
            "ledger: correlated noise whose mechanism changes on the way has no price; allowed: one for all"
        )
    if m.sampling != "shuffle" or m.clip == "quantile":
        raise UserError(
            f"ledger: correlated noise has no price with sampling = {m.sampling}, clip = {m.clip}; "
            "allowed: shuffle, fixed or automatic"
        )
    longest = steps_at_rate(m.rate)
    if m.band > longest:
        raise UserError(
            f"ledger: band = {m.band} at rate = {m.rate:g}; allowed: at most {longest}, the steps of an epoch"
        )
    executed = [sum(entry.steps for entry in epoch) for _, epoch in groupby(entries, key=lambda entry: entry.epoch)]
    if max(executed) > longest:
        raise UserError(f"ledger: an epoch of {max(executed)} steps; allowed: at most {longest} at rate = {m.rate:g}")
    if any(steps < m.band for steps in executed[:-1]):
        raise UserError(
            f"ledger: after an epoch of {min(executed[:-1])} steps the next one began within the band; "
            f"allowed: at least {m.band} steps in every epoch but the last"
        )
