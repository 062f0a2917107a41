"""What a membership attack sees of a model, and of whom: without the libraries that attack it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP = 3
"""How many of the sorted scores are kept: of the intents, and of the tags of a token."""

WIDTH = 3 * TOP
"""F: sorted intent scores, then the mean and the minimum over tokens of each sorted tag score."""

Floats = NDArray[np.float32]

# Members differ from non-members in how close to 1 a score is: a logit spreads what a probability squeezes.
_CLIP = 1e-6


def attack_features(intent_probs: Floats, slot_marginals: Floats, lengths: NDArray[np.int64]) -> Floats:
    """Sorted scores of a batch as the attack sees them.

    Args:
        intent_probs: (B, I) probabilities of the intents.
        slot_marginals: (B, T, K) probabilities of the tags; what stands beyond an utterance's length is not read.
        lengths: (B,) tokens of each utterance.

    Returns:
        (B, F) logits of sorted scores, `WIDTH` of them; a model with fewer labels than `TOP` is padded.
    """
    batch, time, _ = slot_marginals.shape
    intents = _largest(intent_probs)
    tags = _largest(slot_marginals)
    inside = (np.arange(time)[None, :] < lengths[:, None])[:, :, None]
    mean = np.where(inside, tags, 0.0).sum(axis=1) / np.maximum(lengths, 1)[:, None]
    least = np.where(inside, tags, 1.0).min(axis=1)
    scores = np.clip(np.concatenate([intents, mean, least], axis=1), _CLIP, 1 - _CLIP)
    return np.log(scores / (1 - scores)).astype(np.float32).reshape(batch, WIDTH)


def _largest(scores: Floats) -> Floats:
    """The `TOP` largest along the last axis, descending, zeros where there are fewer."""
    kept: Floats = np.sort(scores, axis=-1)[..., ::-1][..., :TOP]
    missing = TOP - kept.shape[-1]
    return np.pad(kept, [(0, 0)] * (kept.ndim - 1) + [(0, missing)]) if missing else kept


MOST_MEMBERS = 5_000
"""Attacked of a large corpus, and as many non-members: an AUC is good to 0.01 then."""


def membership_indices(train: int, test: int, *, seed: int, at_most: int = MOST_MEMBERS) -> tuple[Any, Any]:
    """Equal numbers of members (of train) and non-members (of test), the same for every trial of a sweep.

    Returns:
        Two sorted index arrays of one length. No utterance stands in both: the splits share none.
    """
    rng = np.random.default_rng([seed, 0x4D4941])
    n = min(train, test, at_most)
    members = np.sort(rng.choice(train, n, replace=False))
    return members, np.sort(rng.choice(test, n, replace=False))
