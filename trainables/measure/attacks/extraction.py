"""Extract masked words of training utterances from a model (after Parikh, Dupuy and Gupta 2022).

The attacker knows an utterance of the training split with its labels, except for one word, and has R candidates for it.
Each is put in its place, and the model's loss ranks them: the smallest is the guess. Parikh et al. search for a word by
gradients; with a list of candidates no search is needed.

A corpus says what to try by its labels: a *secret* is a word with the tag `B-secret`. Its candidates are the words that
are in its place in otherwise equal utterances of the test split, which the model has not seen. Other corpora are not
measured. A secret's *exposure* is log2 R - log2 of its rank (Carlini et al. 2019).

Shapes: m secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, t

from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.measure.attacks.roc import CONFIDENCE

SECRET = "B-secret"
"""The tag of a word to extract."""

Rows = NDArray[np.int64]
Frame = tuple[int, ...]
"""An utterance without its secret: its intent, and its tokens with -1 for the secret's."""


@dataclass(frozen=True)
class Extraction:
    """What was extracted from a model, and what guessing would extract."""

    secrets: int
    candidates: int
    """R, the least of all secrets, the true word included."""
    extracted: int
    """The number of secrets whose guess is right."""
    exposure: float
    """The mean over secrets, in bits; at most log2 R."""
    exposure_ci: tuple[float, float]
    """Its interval at 95 %, for other secrets and the same model."""
    extracted_by_guessing: float
    exposure_by_guessing: float


def secrets_in(corpus: EncodedCorpus) -> list[tuple[int, Rows]]:
    """Return each secret's row in train, and its candidates' rows in test; [] for a corpus without secrets.

    Copies of an utterance are one secret, and one candidate. A secret without a candidate is left out. What stands in
    train is no candidate.
    """
    if SECRET not in corpus.labels.tags:
        return []
    trained = _rows_by_frame(corpus, "train")
    candidates: dict[Frame, list[int]] = {}
    for (frame, word), row in _rows_by_frame(corpus, "test").items():
        if (frame, word) not in trained:
            candidates.setdefault(frame, []).append(row)
    return [(row, np.array(candidates[frame])) for (frame, _), row in trained.items() if frame in candidates]


def _rows_by_frame(corpus: EncodedCorpus, split: Split) -> dict[tuple[Frame, tuple[int, ...]], int]:
    """Return one row for each utterance of a split with a secret: by the utterance without it, and the secret."""
    tag = corpus.labels.tags.index(SECRET)
    rows = np.arange(corpus.size(split))
    said = zip(corpus.token_ids(split, rows), corpus.tag_ids(split, rows), corpus.intent_ids(split, rows), strict=True)
    return {
        ((int(intent), *np.where(tags == tag, -1, tokens).tolist()), tuple(tokens[tags == tag].tolist())): row
        for row, (tokens, tags, intent) in enumerate(said)
        if (tags == tag).any()
    }


def extraction(secret_losses_m: NDArray[np.float64], candidate_losses: list[NDArray[np.float64]]) -> Extraction:
    """Return what the losses of m secrets, and of the other candidates of each, tell. Ties share their mean rank."""
    others_m = np.array([len(losses) for losses in candidate_losses])
    every = zip(secret_losses_m, candidate_losses, strict=True)
    rank_m = np.array([rankdata([own, *others])[0] for own, others in every])
    exposure_m = np.log2(others_m + 1) - np.log2(rank_m)
    m, tail, most = len(rank_m), (1 - CONFIDENCE) / 2, float(np.log2(others_m + 1).max())
    half = t.isf(tail, m - 1) * exposure_m.std(ddof=1) / m**0.5 if m > 1 else np.inf
    # Also if all m are equal: a larger share of others, of any exposure, would have shown one among m.
    share = 1 - tail ** (1 / m)
    exposure = float(exposure_m.mean())
    guessed = [np.mean([log2(n + 1) - log2(rank) for rank in range(1, n + 2)]) for n in others_m]
    return Extraction(
        secrets=m,
        candidates=int(others_m.min()) + 1,
        extracted=int((rank_m == 1).sum()),
        exposure=exposure,
        exposure_ci=(
            max(0.0, exposure - max(half, share * exposure)),
            min(most, exposure + max(half, share * (most - exposure))),
        ),
        extracted_by_guessing=float((1 / (others_m + 1)).sum()),
        exposure_by_guessing=float(np.mean(guessed)),
    )
