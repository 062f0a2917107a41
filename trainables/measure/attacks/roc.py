"""The ROC curve of an attack, the area below it (AUC), and the TPR at a low FPR.

Scores are higher for members, whatever the attack. Intervals are at 95 %, for other utterances with the same model.
They do not include the variation between seeds of a training, which `edp-sweep confirm` measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.optimize import brentq
from scipy.stats import beta, binom, binomtest, norm, rankdata
from sklearn.metrics import roc_auc_score, roc_curve

from trainables.measure.attacks import Attack, Evidence, Scores, every_attack

Ranks = NDArray[np.int64]
Interval = tuple[float, float]
# Pydantic checks these bounds when results are read from a file.
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

CONFIDENCE = 0.95
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class AttackResult:
    """The figures of one attack on one model."""

    name: str
    auc: Share
    auc_ci: tuple[Share, Share]
    """Interval by `auc_interval`."""
    tpr_at_1pct_fpr: Share
    tpr_at_1pct_fpr_ci: tuple[Share, Share]
    """Interval by `tpr_interval`, as the next one."""
    tpr_at_01pct_fpr: Share
    tpr_at_01pct_fpr_ci: tuple[Share, Share]
    members: Count
    non_members: Count
    fpr: list[Share] = field(repr=False)
    tpr: list[Share] = field(repr=False)
    realised_1pct_fpr: Share
    """Share of the non-members above the threshold: less than 1 % if ties or their number allow no more."""
    realised_01pct_fpr: Share

    def document(self) -> dict[str, Any]:
        """Return the fields that `--json` prints: all but the curve."""
        return {key: value for key, value in asdict(self).items() if key not in ("fpr", "tpr")}


def run_attacks(evidence: Evidence, attacks: Iterable[Attack] | None = None) -> list[AttackResult]:
    """Return the results of all attacks whose evidence is available.

    Args:
        attacks: the attacks to run; None: all that are registered.
    """
    found = []
    for attack in every_attack() if attacks is None else attacks:
        seen = [getattr(evidence, field) for field in attack.sees]
        if any(one is None for one in seen):
            continue
        scores_n = attack.score(*seen)
        tried_n = getattr(evidence, attack.only) if attack.only is not None else np.ones(len(scores_n), bool)
        member_n = np.arange(len(scores_n)) < evidence.members
        found.append(measure(attack.name, scores_n[tried_n & member_n], scores_n[tried_n & ~member_n]))
    return found


def measure(name: str, member_scores: Scores, non_member_scores: Scores) -> AttackResult:
    """Return ROC, AUC and TPR at 1 % and 0.1 % FPR of an attack's scores, (M,) of members and (N,) of non-members.

    Raises:
        ValueError: for no members, no non-members, or a score that is not a number.
    """
    if not len(member_scores) or not len(non_member_scores):
        raise ValueError("an attack is measured on members and non-members; one of them is empty")
    if np.isnan(member_scores).any() or np.isnan(non_member_scores).any():
        raise ValueError(f"attack {name} gave a score that is not a number")
    y = np.repeat([1, 0], [len(member_scores), len(non_member_scores)])
    # Ranks give the same curve as scores, and scikit-learn refuses infinite scores.
    ranks = rankdata(np.concatenate([member_scores, non_member_scores]), method="dense").astype(np.int64)
    fpr, tpr, _ = roc_curve(y, ranks, drop_intermediate=False)
    corners = _corners(fpr, tpr)
    at = {limit: rates_at_fpr(member_scores, non_member_scores, limit) for limit in (0.01, 0.001)}
    ci = {limit: tpr_interval(member_scores, non_member_scores, limit) for limit in at}
    return AttackResult(
        name=name,
        auc=auc(member_scores, non_member_scores),
        auc_ci=auc_interval(member_scores, non_member_scores),
        tpr_at_1pct_fpr=at[0.01][0],
        tpr_at_1pct_fpr_ci=ci[0.01],
        realised_1pct_fpr=at[0.01][1],
        tpr_at_01pct_fpr=at[0.001][0],
        tpr_at_01pct_fpr_ci=ci[0.001],
        realised_01pct_fpr=at[0.001][1],
        members=len(member_scores),
        non_members=len(non_member_scores),
        fpr=fpr[corners].tolist(),
        tpr=tpr[corners].tolist(),
    )


def strongest(results: list[AttackResult]) -> AttackResult:
    """Return the result with the highest AUC."""
    return max(results, key=lambda result: result.auc)


def rates_at_fpr(member_scores: Scores, non_member_scores: Scores, limit: float) -> tuple[float, float]:
    """Return TPR and realised FPR at the lowest threshold that at most `limit` (0..1) of the non-members exceed.

    Args:
        member_scores: (M,), higher for members; infinite scores are allowed.
        non_member_scores: (N,), likewise.
        limit: 0 to 1.
    """
    allowed = int(limit * len(non_member_scores) + 1e-9)
    if allowed >= len(non_member_scores):
        return 1.0, 1.0
    place = len(non_member_scores) - 1 - allowed
    threshold = np.partition(non_member_scores, place)[place]
    return float((member_scores > threshold).mean()), float((non_member_scores > threshold).mean())


def tpr_interval(member_scores: Scores, non_member_scores: Scores, limit: float) -> Interval:
    """Return an interval of the TPR at the threshold that a share `limit` of *all* non-members exceeds.

    That threshold is only known as far as N non-members tell: Binomial(N, limit) of them exceed it. So the bounds are
    those of Clopper and Pearson, averaged over that number. They hold for any distribution of scores, and are cautious:
    in simulated attacks they hold the truth in 97 to 99 of 100 cases. Clopper and Pearson's interval at the threshold
    that N non-members happen to set holds it in 47 to 73 (`tests/benchmarks/calibration.py`).

    Args:
        member_scores: (M,), higher for members; infinite scores are allowed.
        non_member_scores: (N,), likewise.
        limit: 0 to 1.
    """
    M, N = len(member_scores), len(non_member_scores)
    above_r = np.arange(N + 1)
    weight_r = binom.pmf(above_r, N, limit)
    above_r, weight_r = above_r[weight_r > _NEGLIGIBLE], weight_r[weight_r > _NEGLIGIBLE]
    # If r non-members exceed the threshold, it is at most the r-th largest of their scores, and at least the next one.
    edges = np.concatenate([[np.inf], np.sort(non_member_scores)[::-1], [-np.inf]])
    at_most_r, at_least_r = edges[above_r], edges[above_r + 1]
    members = np.sort(member_scores)
    fewest_r = M - np.searchsorted(members, at_most_r, side="right")
    most_r = M - np.searchsorted(members, at_least_r, side="left")

    def below(share: float, hits_r: Ranks, more: int) -> float:
        known_r = np.where(
            hits_r == (0, M)[more], float(1 - more), beta.cdf(share, hits_r + more, M - hits_r + 1 - more)
        )
        return float(weight_r @ known_r)

    tail = (1 - CONFIDENCE) / 2
    low = _crossing(lambda share: below(share, fewest_r, 0) - tail)
    return low, _crossing(lambda share: below(share, most_r, 1) - (1 - tail))


def _crossing(rising: Callable[[float], float]) -> float:
    """Return where a function on [0, 1] that does not fall passes 0; the end where it is, if it does not."""
    if rising(0.0) >= 0:
        return 0.0
    return 1.0 if rising(1.0) <= 0 else float(brentq(rising, 0.0, 1.0))


def auc(member_scores: Scores | Ranks, non_member_scores: Scores | Ranks) -> float:
    """Return the probability that a member scores higher than a non-member, ties counting one half."""
    ranks = rankdata(np.concatenate([member_scores, non_member_scores]))  # scikit-learn refuses infinite scores
    return float(roc_auc_score(np.repeat([1, 0], [len(member_scores), len(non_member_scores)]), ranks))


def _corners(fpr: Scores, tpr: Scores) -> NDArray[np.bool_]:
    """Return a mask (P,) of the points of a curve that are not inside a horizontal or vertical stretch."""
    level, upright = np.diff(tpr) == 0, np.diff(fpr) == 0
    inside = (level[:-1] & level[1:]) | (upright[:-1] & upright[1:])
    return np.asarray(np.concatenate([[True], ~inside, [True]]))


def auc_interval(member_scores: ArrayLike, non_member_scores: ArrayLike) -> Interval:
    """Return the interval of an AUC by DeLong, DeLong and Clarke-Pearson (1988), from ranks (Sun and Xu 2014).

    It takes milliseconds, so that every epoch of a trial can have one, and agrees with a bootstrap. If its variance is
    0 (scores do not overlap, or all are equal, or there is only one of a kind), this is `spreadless_interval`.

    Args:
        member_scores: (m,), higher for members; ties count one half.
        non_member_scores: (n,), likewise.
    """
    inside, outside = np.asarray(member_scores, float), np.asarray(non_member_scores, float)
    m, n = len(inside), len(outside)
    among_all = rankdata(np.concatenate([inside, outside]))
    # The mean of the shares of the other kind that each score beats is the AUC.
    beats_m = (among_all[:m] - rankdata(inside)) / n
    beaten_n = 1 - (among_all[m:] - rankdata(outside)) / m
    area = float(beats_m.mean())
    variance = beats_m.var(ddof=1) / m + beaten_n.var(ddof=1) / n if min(m, n) > 1 else 0.0
    if variance == 0:
        return spreadless_interval(area, m, n)
    half = float(norm.ppf((1 + CONFIDENCE) / 2)) * float(np.sqrt(variance))
    return max(0.0, area - half), min(1.0, area + half)


def spreadless_interval(area: float, members: int, non_members: int) -> Interval:
    """Return the interval of an AUC for which DeLong's variance and a bootstrap's are 0.

    It is Clopper–Pearson's over disjoint pairs of a member and a non-member. A fraction of a pair is rounded down for
    the lower bound and up for the upper one.
    """
    pairs = min(members, non_members)
    return clopper_pearson(math.floor(area * pairs), pairs)[0], clopper_pearson(math.ceil(area * pairs), pairs)[1]


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the exact two-sided interval of a proportion (Clopper and Pearson 1934)."""
    found = binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)
