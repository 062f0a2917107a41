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
from scipy.stats import norm, rankdata

from trainables.features.encoded_corpus import EncodedCorpus, Split
from trainables.measure.attacks.roc import CONFIDENCE

SECRET = "B-secret"
"""The tag of a word to extract."""

Rows = NDArray[np.int64]


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

    Copies of an utterance are one secret. A secret without a candidate is left out.
    """
    if SECRET not in corpus.labels.tags:
        return []
    candidates: dict[bytes, list[int]] = {}
    for row, (frame, _) in _frames(corpus, "test").items():
        candidates.setdefault(frame, []).append(row)
    found = {secret: row for row, secret in _frames(corpus, "train").items()}
    return [(row, np.array(candidates[frame])) for (frame, _), row in found.items() if frame in candidates]


def _frames(corpus: EncodedCorpus, split: Split) -> dict[int, tuple[bytes, bytes]]:
    """Return, for each row of a split with a secret, the utterance without it, and the secret."""
    tag = corpus.labels.tags.index(SECRET)
    rows = np.arange(corpus.size(split))
    said = zip(corpus.token_ids(split, rows), corpus.tag_ids(split, rows), corpus.intent_ids(split, rows), strict=True)
    return {
        row: (
            np.where(tags == tag, -1, tokens).tobytes() + bytes([0]) + str(intent).encode(),
            tokens[tags == tag].tobytes(),
        )
        for row, (tokens, tags, intent) in enumerate(said)
        if (tags == tag).any()
    }


def extraction(secret_losses_m: NDArray[np.float64], candidate_losses: list[NDArray[np.float64]]) -> Extraction:
    """Return what the losses of m secrets, and of the other candidates of each, tell. Ties share their mean rank."""
    others_m = np.array([len(losses) for losses in candidate_losses])
    every = zip(secret_losses_m, candidate_losses, strict=True)
    rank_m = np.array([rankdata([own, *others])[0] for own, others in every])
    exposure_m = np.log2(others_m + 1) - np.log2(rank_m)
    half = norm.ppf((1 + CONFIDENCE) / 2) * exposure_m.std(ddof=1) / len(rank_m) ** 0.5 if len(rank_m) > 1 else np.inf
    exposure = float(exposure_m.mean())
    guessed = [np.mean([log2(n + 1) - log2(rank) for rank in range(1, n + 2)]) for n in others_m]
    return Extraction(
        secrets=len(rank_m),
        candidates=int(others_m.min()) + 1,
        extracted=int((rank_m == 1).sum()),
        exposure=exposure,
        exposure_ci=(max(0.0, exposure - half), min(float(np.log2(others_m + 1).max()), exposure + half)),
        extracted_by_guessing=float((1 / (others_m + 1)).sum()),
        exposure_by_guessing=float(np.mean(guessed)),
    )
