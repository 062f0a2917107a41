"""Kill each process of a sweep at five moments: the sweep goes on, or stops with one line, and `resume` ends it whole.

    python -m tests.benchmarks.deaths [KIND …]

Prints a line for each kill, and at last how many of them held. A kind (`tests.support.deaths.KINDS`) takes a minute or
two.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.deaths import KINDS, MOMENTS, Death, walk


def main(kinds: Sequence[str]) -> None:
    """Print what came of each kill."""
    deaths = [death for kind in kinds or KINDS for death in _deaths(kind)]
    print(f"{sum(death.held for death in deaths)} of {len(deaths)} held")


def _deaths(kind: str) -> Iterator[Death]:
    """Kill a kind at all moments, in a new sweep where it did not start again in the first one."""
    left = list(MOMENTS)
    while left:
        last = left[0]
        with tempfile.TemporaryDirectory() as folder:
            for death in walk(kind, Path(folder), left):
                print(f"{kind}, {death.moment}: {death.fate}", flush=True)
                last = death.moment or last
                yield death
        left = left[left.index(last) + 1 :]


if __name__ == "__main__":
    main(sys.argv[1:])
