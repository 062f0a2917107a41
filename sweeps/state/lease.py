"""One machine at a time drives the sweeps of an object store: a lease that ends by itself where its holder died."""

from __future__ import annotations

import time
from datetime import datetime

from pydantic import BaseModel, ValidationError

from edp.spec import UserError
from sweeps.state.bucket import Bucket

_FILE = "lease.json"

LEASE_S = 600.0
"""A lease lasts so long after it was renewed last. Machines' clocks must agree far better than that."""
_SETTLE_S = 1.0
"""Of two that take a lease at once, both have written after so long, and the last one has it."""


class Lease(BaseModel):
    """Who drives sweeps of a store, by machine and working folder, and until when each of them."""

    place: str
    holder: str
    """For people."""
    until: dict[str, float]
    """When it ends, by sweep: seconds since 1970."""

    @property
    def sweeps(self) -> set[str]:
        """Those that are driven now."""
        return {name for name, end in self.until.items() if end > time.time()}


def read_lease(bucket: Bucket) -> Lease | None:
    """Whose it is now; None: nobody's."""
    if bucket.size(_FILE) is None:
        return None
    try:
        found = Lease.model_validate_json(bucket.get(_FILE))
    except ValidationError:  # half of it was written
        return None
    return found if found.sweeps else None


def take_lease(bucket: Bucket, place: str, holder: str, sweep: str) -> None:
    """Takes the lease for `sweep`, or renews it. One process of `place` at a time may do so.

    Raises:
        UserError: when another machine, or another working folder, has it.
    """
    before = _ours_or_free(bucket, place)
    until = {name: end for name, end in (before.until if before else {}).items() if end > time.time()}
    mine = Lease(place=place, holder=holder, until={**until, sweep: time.time() + LEASE_S})
    bucket.put(_FILE, mine.model_dump_json().encode())
    if before is None:
        time.sleep(_SETTLE_S)
        _ours_or_free(bucket, place)


def leave_lease(bucket: Bucket, place: str, sweep: str) -> None:
    """Gives the lease back for `sweep`; one that is no longer ours stays as it is."""
    found = read_lease(bucket)
    if found is None or found.place != place:
        return
    until = {name: end for name, end in found.until.items() if name != sweep}
    if until:
        bucket.put(_FILE, found.model_copy(update={"until": until}).model_dump_json().encode())
    else:
        bucket.delete(_FILE)


def _ours_or_free(bucket: Bucket, place: str) -> Lease | None:
    found = read_lease(bucket)
    if found is not None and found.place != place:
        end = datetime.fromtimestamp(max(found.until.values()))
        raise UserError(
            f"storage = {bucket.address!r}: sweep(s) {', '.join(sorted(found.sweeps))} of it run elsewhere "
            f"({found.holder}); allowed: one machine at a time, another one after {end:%H:%M:%S} where that one is gone"
        )
    return found
