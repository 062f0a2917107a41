"""The time that a search which repeats costs: trials that wait for the ends of those that choose them.

    python -m tests.benchmarks.ordered

Trials of made-up lengths on k slots, with and without the wait of `sweeps.engine.study.Asker`: trial n waits for those
up to n - lag. Prints, in percent, the mean of the additional time over 200 draws of 64 trials.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from statistics import mean

TRIALS, DRAWS = 64, 200
Lengths = Callable[[random.Random], float]
LENGTHS: dict[str, Lengths] = {
    "equal": lambda luck: 1.0,
    "uniform, 0.9 to 1.1": lambda luck: luck.uniform(0.9, 1.1),
    "log-normal, sigma 0.3 (fourfold)": lambda luck: luck.lognormvariate(0, 0.3),
    "log-normal, sigma 0.7 (tenfold and more)": lambda luck: luck.lognormvariate(0, 0.7),
    "half stopped after 1, 2, 4, 8 or 16 of 30 epochs": lambda luck: (
        1.0 if luck.random() < 0.5 else luck.choice([1, 2, 4, 8, 16]) / 30
    ),
}


def seconds(lengths: list[float], slots: int, lag: int) -> float:
    """Return when the last trial has ended; a lag of at least the number of trials waits for none."""
    ended, running, now, n = set[int](), list[tuple[float, int]](), 0.0, 0
    while n < len(lengths) or running:
        while n < len(lengths) and len(running) < slots and ended.issuperset(range(n - lag + 1)):
            heapq.heappush(running, (now + lengths[n], n))
            n += 1
        now, one = heapq.heappop(running)
        ended.add(one)
    return now


def cost(lengths: Lengths, slots: int, lag: int) -> float:
    """Return the mean of the additional time, as a share."""
    luck = random.Random(0)
    draws = [[lengths(luck) for _ in range(TRIALS)] for _ in range(DRAWS)]
    return mean(seconds(one, slots, lag) / seconds(one, slots, TRIALS) for one in draws) - 1


if __name__ == "__main__":
    for name, lengths in LENGTHS.items():
        for slots in (2, 4, 8, 16):
            lags = {"k": slots, "2k - 1": 2 * slots - 1, "4k - 3": 4 * slots - 3}
            print(f"{name}, k = {slots}:", {words: f"{cost(lengths, slots, lag):.1%}" for words, lag in lags.items()})
