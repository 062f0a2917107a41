"""Attacks on the loss of the true answer: a threshold, LiRA and RMIA, in NumPy. Scores are higher for members.

The joint answer of an utterance is its intent and all of its tags. Its loss is the training loss: the negative
logarithm of the probability p that the model gives to that answer.

Shapes: k reference models, n utterances under attack, z utterances of a population that no model was trained on.
`inside_kn` says which references were trained on which utterances.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import rankdata

from trainables.measure.attacks import Attack, Mask
from trainables.measure.attacks.roc import auc

Floats = NDArray[np.float64]

_MIN_LOSS = 1e-9
"""Losses are differences of sums of scores. Smaller ones are rounding errors."""

_OWN_VARIANCE = 32
"""Fewest references of a kind from which an utterance's own variance is estimated.

With fewer, it is too noisy, and one variance of all utterances is used, as Carlini et al. (2022), section VI-A, do
below 64 models, 32 of a kind."""


def loss_scores(losses_n: Floats) -> Floats:
    """Return the scores of the loss threshold (Yeom et al. 2018): the smaller the loss, the likelier a member."""
    return -losses_n


def logit_confidence(losses: Floats) -> Floats:
    """Return log(p / (1 - p)) of the true answer's p, any shape, from its loss -log p, without forming p.

    It is close to normally distributed over models, which LiRA assumes (Carlini et al. 2022, section V-A).
    """
    losses = np.maximum(losses, _MIN_LOSS)
    return -losses - np.log(-np.expm1(-losses))


def lira_scores(target_n: Floats, references_kn: Floats, inside_kn: Mask, *, online: bool) -> Floats:
    """Return the scores of LiRA (Carlini et al. 2022, Algorithm 1), from losses.

    Online, a score is the log likelihood ratio of the target's logit confidence under two normal distributions: one
    fitted to the models that were trained on the utterance, one to the others. Offline, it is the distance above the
    others' mean in standard deviations (a one-sided test; its p-value gives the same order).

    Raises:
        ValueError: if an utterance has no reference outside (or, online, inside).
    """
    target_n, confidence_kn = logit_confidence(target_n), logit_confidence(references_kn)
    mean_out_n, std_out_n = _normal(confidence_kn, ~inside_kn, "outside")
    far_out_n = (target_n - mean_out_n) / std_out_n
    if not online:
        return far_out_n
    mean_in_n, std_in_n = _normal(confidence_kn, inside_kn, "inside")
    far_in_n = (target_n - mean_in_n) / std_in_n
    return (far_out_n**2 - far_in_n**2) / 2 + np.log(std_out_n / std_in_n)


def _normal(values_kn: Floats, chosen_kn: Mask, where: str) -> tuple[Floats, Floats]:
    """Return mean and standard deviation over the chosen models of each utterance."""
    count_n = chosen_kn.sum(0)
    if (count_n < 1).any():
        raise ValueError(f"an utterance has no reference model that it is {where} of; allowed: at least one")
    mean_n = np.where(chosen_kn, values_kn, 0.0).sum(0) / count_n
    squares_n = np.where(chosen_kn, (values_kn - mean_n) ** 2, 0.0).sum(0)
    if count_n.min() >= _OWN_VARIANCE:
        variance_n = squares_n / (count_n - 1)
    else:
        freedom = int((count_n - 1).sum())
        # A single model of a kind has no spread. Any constant keeps the order of the scores.
        variance_n = np.full(len(count_n), squares_n.sum() / freedom if freedom else 1.0)
    return mean_n, np.sqrt(variance_n + 1e-12)


def rmia_scores(
    target_n: Floats,
    references_kn: Floats,
    inside_kn: Mask,
    target_z: Floats,
    references_kz: Floats,
    *,
    online: bool,
    a: float = 1.0,
    gamma: float = 1.0,
) -> Floats:
    """Return the scores of RMIA (Zarifzadeh et al. 2024), from losses.

    The score of x is the share of population utterances z with (p(x|θ)/p(x)) / (p(z|θ)/p(z)) >= γ (their equation 2
    and Definition 1). Online, p(x) is the mean over all references. Offline, only the references outside x are used,
    and `a` corrects for the others: p(x) = ((1 + a)·p_out(x) + 1 - a) / 2 (their appendix B.2.2). No model was trained
    on z, so p(z) is the mean over all references, with the same correction offline.

    Ties are broken by the ratio of x, by less than one utterance of the population. With a few hundred z, the surest of
    thousands of members would otherwise tie, and the attack would find none at a low FPR.
    """
    log_x_n = _log_mean(-references_kn, np.ones_like(inside_kn) if online else ~inside_kn)
    log_z_z = _log_mean(-references_kz, np.ones(references_kz.shape, dtype=bool))
    if not online:
        log_x_n, log_z_z = _with_inside(log_x_n, a), _with_inside(log_z_z, a)
    ratio_n = -target_n - log_x_n
    ratio_z = np.sort(-target_z - log_z_z)
    likelier_n = np.searchsorted(ratio_z, ratio_n - np.log(gamma), side="right")
    return np.asarray((likelier_n + rankdata(ratio_n) / (len(ratio_n) + 1)) / len(ratio_z))


def rmia_a(references_kn: Floats, inside_kn: Mask, references_kz: Floats) -> float:
    """Return the `a` of offline RMIA with which the other references attack the first one best, as its authors do.

    It does not depend on the target. It is 1 if no utterance that can be scored is inside, or none is outside.
    """
    kept_n: Mask = np.asarray((~inside_kn[1:]).any(0))
    inside_n = inside_kn[0] & kept_n
    outside_n = ~inside_kn[0] & kept_n
    if not inside_n.any() or not outside_n.any():
        return 1.0

    def found(a: float) -> float:
        scores = np.full(len(kept_n), np.nan)
        scores[kept_n] = rmia_scores(
            references_kn[0, kept_n],
            references_kn[1:, kept_n],
            inside_kn[1:, kept_n],
            references_kz[0],
            references_kz[1:],
            online=False,
            a=a,
        )
        return auc(scores[inside_n], scores[outside_n])

    return max((round(0.1 * i, 1) for i in range(10, -1, -1)), key=found)


def _log_mean(logs_kn: Floats, chosen_kn: Mask) -> Floats:
    """Return the log of the mean of exp over the chosen models."""
    count_n = chosen_kn.sum(0)
    if (count_n < 1).any():
        raise ValueError("an utterance has no reference model to compare with; allowed: at least one")
    return np.asarray(logsumexp(logs_kn, axis=0, b=chosen_kn)) - np.log(count_n)


def _with_inside(log_out: Floats, a: float) -> Floats:
    """Return the log of ((1 + a)·p_out + 1 - a) / 2."""
    floor = np.log((1 - a) / 2) if a < 1 else -np.inf
    return np.logaddexp(np.log((1 + a) / 2) + log_out, floor)


def _rmia_offline(
    target_n: Floats, references_kn: Floats, inside_kn: Mask, target_z: Floats, references_kz: Floats
) -> Floats:
    a = rmia_a(references_kn, inside_kn, references_kz)
    return rmia_scores(target_n, references_kn, inside_kn, target_z, references_kz, online=False, a=a)


_LIRA_SEES = ("losses_n", "losses_kn", "inside_kn")
_RMIA_SEES = (*_LIRA_SEES, "losses_z", "losses_kz")
_OFFLINE = ("a smaller loss than of models that never saw the utterance", "the true answers and reference models")
_ONLINE = (
    "a loss smaller than of models that never saw the utterance, and as small as of models that did",
    "the true answers and reference models trained on the very utterances",
)

ATTACKS = (
    Attack("loss", "a small loss of the true answer", "the true answers", "#ff725c", ("losses_n",), loss_scores),
    Attack("rmia_offline", *_OFFLINE, "#6cc5b0", _RMIA_SEES, _rmia_offline),
    Attack("lira_offline", *_OFFLINE, "#3ca951", _LIRA_SEES, partial(lira_scores, online=False)),
    Attack("rmia_online", *_ONLINE, "#ff8ab7", _RMIA_SEES, partial(rmia_scores, online=True)),
    Attack("lira_online", *_ONLINE, "#a463f2", _LIRA_SEES, partial(lira_scores, online=True)),
)
