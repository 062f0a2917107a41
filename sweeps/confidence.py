"""Which places on the front are certain, and which hang on noise.

SER and MIA AUC are estimates with 95 % intervals (`ser_lower`, `ser_upper`, …); ε is computed and has none.
"""

from __future__ import annotations

import math

from sweeps.front import dominates
from sweeps.spec import Objective, objective_values
from sweeps.store import TrialRecord

Metrics = dict[str, float]


def difference(one: Metrics, other: Metrics, objective: Objective) -> tuple[float, float]:
    """95 % interval of `one` less `other` in an objective, from the interval of each (Zou and Donner 2008).

    The two are taken to be independent. Trials share their test utterances, which makes them alike, so the interval
    is too wide rather than too narrow. A figure without an interval, as ε, counts as exact.
    """
    (a,), (b,) = objective_values((objective,), one), objective_values((objective,), other)
    if a == b:
        gap = 0.0  # also where both are infinite
    else:
        gap = a - b
    if not all(f"{objective}_{side}" in metrics for side in ("lower", "upper") for metrics in (one, other)):
        return gap, gap
    below = math.hypot(a - one[f"{objective}_lower"], other[f"{objective}_upper"] - b)
    above = math.hypot(one[f"{objective}_upper"] - a, b - other[f"{objective}_lower"])
    return gap - below, gap + above


def lead_is_noise(ahead: Metrics, behind: Metrics, objectives: tuple[Objective, ...]) -> bool:
    """Whether `ahead` is better in something, and in nothing that it is better in beyond noise.

    That is: wherever its estimate is the lower one, the 95 % interval of the difference reaches 0.
    """
    values = zip(objectives, objective_values(objectives, ahead), objective_values(objectives, behind), strict=True)
    better = [name for name, a, b in values if a < b]
    return bool(better) and all(difference(ahead, behind, name)[1] >= 0 for name in better)


def ties(
    trials: list[TrialRecord], front: list[TrialRecord], objectives: tuple[Objective, ...]
) -> dict[int, list[int]]:
    """Trials whose place is not told from noise, and the front's trials that they are not told apart from.

    The front is computed on estimates. A trial's place hangs on where one of a pair is ahead of the other:

    - A dominated trial p is tied with a trial q of the front that dominates it, where q's lead is noise: p may be as
      good as q.
    - A trial p of the front is tied with another one, q, where p's own lead over q is noise: q is ahead in something
      else, and p may truly be ahead in nothing.

    ε is exact: a dominated trial is told apart from every q of a smaller ε, however close their SER and MIA AUC are.

    Returns:
        Trial number to the numbers that it is tied with, both in order; trials that are tied with none are left out.
    """
    on_front = {t.number for t in front}
    found: dict[int, list[int]] = {}
    for trial in trials:
        if trial.state != "complete" or not trial.metrics:
            continue
        values = objective_values(objectives, trial.metrics)
        for other in front:
            if other.number == trial.number:
                continue
            if trial.number in on_front:
                tied = lead_is_noise(trial.metrics, other.metrics, objectives)
            else:
                over = dominates(objective_values(objectives, other.metrics), values)
                tied = over and lead_is_noise(other.metrics, trial.metrics, objectives)
            if tied:
                found.setdefault(trial.number, []).append(other.number)
    return {number: sorted(others) for number, others in sorted(found.items())}
