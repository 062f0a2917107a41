"""Kill each process of a sweep at five moments: the sweep goes on, or stops with one line, and `resume` ends it whole.

    python -m tests.benchmarks.deaths [KIND …]

Prints a line for each kill, and at last how many of them held. A kind (`tests.support.deaths.KINDS`) takes a minute or
two.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.deaths import KINDS, walk


def main(kinds: Sequence[str]) -> None:
    """Print what came of each kill."""
    deaths = []
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            for death in walk(kind, Path(folder)):
                deaths.append(death)
                print(f"{death.kind}, {death.moment}: {death.fate}", flush=True)
    print(f"{sum(death.held for death in deaths)} of {len(deaths)} held")


if __name__ == "__main__":
    main(sys.argv[1:])
