"""The noise at a hundred million draws: moments, Kolmogorov-Smirnov, tails. Too long for CI; to be run by hand:

python -m tests.benchmarks.noise_tails
"""

from __future__ import annotations

import json
import sys
from datetime import date

import numpy as np
import torch
from scipy import stats

from edp.noise.compiled import kernel
from edp.noise.gaussian import gaussian_, stream

DRAWS, PIECE, BINS = 100_000_000, 1_000_000, 10_000
THRESHOLDS = (2.0, 3.0, 4.0, 5.0)


def main() -> None:
    """Prints one JSON document; exit code 1 where something is farther off than chance allows."""
    edges = stats.norm.ppf(np.arange(1, BINS) / BINS)
    counts, tails, powers = np.zeros(BINS, np.int64), np.zeros(len(THRESHOLDS), np.int64), np.zeros(4)
    for step in range(DRAWS // PIECE):
        x = gaussian_(torch.empty(PIECE), 1.0, stream(b"tails" * 6 + b"!!", 0, step)).double().numpy()
        counts += np.bincount(np.searchsorted(edges, x), minlength=BINS)
        tails += [(np.abs(x) > t).sum() for t in THRESHOLDS]
        powers += [(x**k).sum() for k in (1, 2, 3, 4)]
    # Standard errors of the first four moments of N(0, 1).
    moments = (powers / DRAWS - [0, 1, 0, 3]) / np.sqrt(np.array([1, 2, 15, 96]) / DRAWS)
    distance = np.abs(np.cumsum(counts) / DRAWS - np.arange(1, BINS + 1) / BINS).max()
    p = float(stats.kstwobign.sf(distance * np.sqrt(DRAWS)))
    expected = DRAWS * 2 * stats.norm.sf(THRESHOLDS)
    off = (tails - expected) / np.sqrt(expected)
    document = {
        "date": f"{date.today()}",
        "command": "python -m tests.benchmarks.noise_tails",
        "draws": DRAWS,
        "generator": "compiled" if kernel() is not None else "torch",
        "moments_in_standard_errors": [round(m, 2) for m in moments],
        "kolmogorov_smirnov": {"distance": float(distance), "p": round(p, 4), "bins": BINS},
        "tails": [
            {"beyond": t, "found": int(n), "expected": round(e, 1), "standard_errors": round(z, 2)}
            for t, n, e, z in zip(THRESHOLDS, tails, expected, off, strict=True)
        ],
    }
    print(json.dumps(document, indent=1))
    sys.exit(bool(np.abs(moments).max() > 5 or p < 1e-5 or np.abs(off).max() > 5))


if __name__ == "__main__":
    main()
