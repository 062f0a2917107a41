"""How sure a measured figure is: 95 % intervals over the utterances that it was measured on.

They say what another sample of utterances would have given with the same model. Another seed of the training is not
in them: that is what `edp-sweep confirm` is for.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Interval = tuple[float, float]

CONFIDENCE = 0.95
_RESAMPLES = 2_000


def ser_interval(errors: NDArray[np.int64], slots: NDArray[np.int64]) -> Interval:
    """Percentile bootstrap of SER over utterances, of fixed seed: the same answers give the same interval.

    Utterances of equal errors and slots are drawn together, as a multinomial: the same distribution as resampling
    them one by one, at a cost that does not grow with their number.

    Args:
        errors, slots: (n,) of each utterance, as `trainables.evaluation.ser.semantic_errors` gives them.
    """
    kinds, counts = np.unique(np.stack([errors, slots]), axis=1, return_counts=True)
    drawn = np.random.default_rng(0).multinomial(len(errors), counts / len(errors), size=_RESAMPLES)
    found = (drawn @ kinds[0]) / np.maximum(drawn @ kinds[1], 1)  # a small split of slots alone may have none
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    return float(low), float(high)


def auc_interval(member_scores: ArrayLike, non_member_scores: ArrayLike) -> Interval:
    """Interval of an AUC by DeLong, DeLong and Clarke-Pearson (1988), computed from ranks (Sun and Xu 2014).

    It costs milliseconds, which every epoch of every trial pays, and agrees with the bootstrap over utterances that
    `trainables.attacks.roc` takes its time for.

    Where it sees no spread, as where members and non-members do not overlap, or all scores are equal, or there is but
    one of a kind, it is `spreadless_interval`.

    Args:
        member_scores, non_member_scores: (m,) and (n,), higher for members; ties count one half.
    """
    from scipy.stats import norm, rankdata  # half a second, which workers that answer SER alone do without

    inside, outside = np.asarray(member_scores, float), np.asarray(non_member_scores, float)
    m, n = len(inside), len(outside)
    among_all = rankdata(np.concatenate([inside, outside]))
    # Share of the other kind that each score beats: its mean is the AUC.
    beats_m = (among_all[:m] - rankdata(inside)) / n
    beaten_n = 1 - (among_all[m:] - rankdata(outside)) / m
    auc = float(beats_m.mean())
    variance = beats_m.var(ddof=1) / m + beaten_n.var(ddof=1) / n if min(m, n) > 1 else 0.0
    if variance == 0:
        return spreadless_interval(auc, m, n)
    half = float(norm.ppf((1 + CONFIDENCE) / 2)) * float(np.sqrt(variance))
    return max(0.0, auc - half), min(1.0, auc + half)


def spreadless_interval(auc: float, members: int, non_members: int) -> Interval:
    """Interval of an AUC where neither DeLong's variance nor a bootstrap sees any spread: Clopper–Pearson over as many
    pairs of a member and a non-member as share nobody, of which a part of one counts as none below, as one above."""
    pairs = min(members, non_members)
    return clopper_pearson(math.floor(auc * pairs), pairs)[0], clopper_pearson(math.ceil(auc * pairs), pairs)[1]


def clopper_pearson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Exact two-sided interval of a proportion (Clopper and Pearson 1934)."""
    from scipy.stats import binomtest

    found = binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(found.low), float(found.high)
