"""Attacks on the loss of the true answer: a threshold, LiRA and RMIA, in NumPy. Scores are higher for members.

The joint answer of an utterance is its intent and all of its tags. Its loss is the training loss: the negative
logarithm of the probability p that the model gives to that answer.

Shapes: k reference models, n utterances under attack, z utterances of a population that no model was trained on.
`inside_kn` says which references were trained on which utterances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, logsumexp, polygamma
from scipy.stats import rankdata, t

from trainables.measure.attacks import Attack, Mask
from trainables.measure.attacks.roc import auc

Floats = NDArray[np.float64]

_MIN_LOSS = 1e-9
"""Losses are differences of sums of scores. Smaller ones are rounding errors."""

_MOST_FREEDOM = 1e6
"""Degrees of freedom of a t distribution that counts as normal."""


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

    Online, a score is the log likelihood ratio of the target's logit confidence under two distributions: one fitted to
    the models that were trained on the utterance, one to the others. Offline, it is how unlikely so high a confidence
    is under the others': -log of its p-value, so that a threshold has nearly the same FPR for every utterance.

    The distributions are Student's t (`_fitted`, `_Predicted`), because few references tell little of an utterance's
    own variance. Carlini et al. take normal ones, with one variance for all utterances or each one's own.

    Raises:
        ValueError: if an utterance has no reference outside (or, online, inside).
    """
    target_n, confidence_kn = logit_confidence(target_n), logit_confidence(references_kn)
    out = _fitted(confidence_kn, ~inside_kn, "outside")
    if not online:
        return -np.asarray(t.logsf(*out.standardised(target_n)))
    return _fitted(confidence_kn, inside_kn, "inside").log_density(target_n) - out.log_density(target_n)


@dataclass(frozen=True)
class _Predicted:
    """Student's t distribution of one more model's confidence, of each utterance."""

    mean_n: Floats
    std_n: Floats
    freedom_n: Floats

    def standardised(self, value_n: Floats) -> tuple[Floats, Floats]:
        """Return the distance from the mean in standard deviations, and the degrees of freedom."""
        return (value_n - self.mean_n) / self.std_n, self.freedom_n

    def log_density(self, value_n: Floats) -> Floats:
        return np.asarray(t.logpdf(*self.standardised(value_n)) - np.log(self.std_n))


def _fitted(values_kn: Floats, chosen_kn: Mask, where: str) -> _Predicted:
    """Return the distribution of each utterance's value over models, given those of the chosen ones.

    The variances of utterances are taken to come from an inverse gamma distribution. All utterances together give its
    two parameters (Smyth 2004). So the variance of one is shrunk to that of all, as far as they are alike. BaVarIA
    (Brännvall 2026) shrinks it too. The mean is unknown as well, which makes the prediction wider.
    """
    count_n = chosen_kn.sum(0)
    if (count_n < 1).any():
        raise ValueError(f"an utterance has no reference model that it is {where} of; allowed: at least one")
    mean_n = np.where(chosen_kn, values_kn, 0.0).sum(0) / count_n
    squares_n = np.where(chosen_kn, (values_kn - mean_n) ** 2, 0.0).sum(0)
    own_n = (count_n - 1).astype(float)
    prior_variance, prior_freedom = _prior(squares_n, own_n)
    freedom_n = prior_freedom + own_n
    variance_n = (prior_freedom * prior_variance + squares_n) / freedom_n
    return _Predicted(mean_n, np.sqrt(variance_n * (1 + 1 / count_n) + 1e-12), freedom_n)


def _prior(squares_n: Floats, freedom_n: Floats) -> tuple[float, float]:
    """Return the typical variance of utterances, and for how many degrees of freedom of its own each may take it.

    log s² of sample variances s² with d degrees of freedom has the variance ψ′(d/2) if all true variances are the same;
    more than that is what utterances differ by. A single model of a kind has no spread: any constant keeps the order.
    """
    spread_n = (freedom_n > 0) & (squares_n > 0)
    if not spread_n.any():
        return 1.0, _MOST_FREEDOM
    half_n = freedom_n[spread_n] / 2
    logs_n = np.log(squares_n[spread_n] / (2 * half_n)) - digamma(half_n) + np.log(half_n)
    beyond = float(logs_n.var() - polygamma(1, half_n).mean())
    if beyond <= polygamma(1, _MOST_FREEDOM / 2):
        return float(squares_n.sum() / freedom_n.sum()), _MOST_FREEDOM
    half = brentq(lambda half: polygamma(1, half) - beyond, 1e-3, _MOST_FREEDOM)
    return float(np.exp(logs_n.mean() + digamma(half) - np.log(half))), 2 * float(half)


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
