"""The usefulness of a model: semantic error rate (SER) and slot F1.

SER (Su et al. 2018) is (S + I + D) / (C + S + D) over the corpus. Slots are aligned in order with the fewest edits. The
intent counts as one more slot of every utterance, if the corpus has intents; without slots, SER is then the error rate
of the intents. With the fewest edits, S + I + D is the edit distance of the two slot lists, and C + S + D is the number
of slots of the reference. Both are counted for each utterance, so that a bootstrap can redraw them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.labels import slot_spans

_RESAMPLES = 2_000

Slot = tuple[str, tuple[Hashable, ...]]


def slots_of(tags: Sequence[str], tokens: Sequence[Hashable]) -> list[Slot]:
    """Return the slots in order: (type, value), where the value is the tuple of tokens."""
    return [(kind, tuple(tokens[start:end])) for kind, start, end in slot_spans(tags)]


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """Count the fewest substitutions, insertions and deletions that turn one list into the other (Levenshtein)."""
    row = list(range(len(hypothesis) + 1))
    for i, wanted in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, found in enumerate(hypothesis, start=1):
            diagonal, row[j] = row[j], min(diagonal + (wanted != found), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def semantic_errors(
    reference_tags: Sequence[str],
    predicted_tags: Sequence[str],
    tokens: Sequence[Hashable],
    reference_intent: Hashable,
    predicted_intent: Hashable,
) -> tuple[int, int]:
    """Count errors (S + I + D) and reference slots (C + S + D) of one utterance, including its intent.

    Args:
        reference_intent: None: the corpus has no intents, and none is counted.
    """
    reference = slots_of(reference_tags, tokens)
    if list(reference_tags) == list(predicted_tags):  # a shortcut that most utterances of a trained model take
        wrong = 0
    else:
        wrong = edit_distance(reference, slots_of(predicted_tags, tokens))
    if reference_intent is None:
        return wrong, len(reference)
    return wrong + (reference_intent != predicted_intent), len(reference) + 1


def semantic_error_rate(errors: np.ndarray, slots: np.ndarray) -> float:
    """Return the SER of a corpus from its utterances' errors and reference slots; without slots, the errors."""
    return float(errors.sum() / max(slots.sum(), 1))


def slot_matches(reference_tags: Sequence[str], predicted_tags: Sequence[str]) -> tuple[int, int]:
    """Count the predicted slots of an utterance that are right in type and place, and all predicted slots."""
    found = set(slot_spans(predicted_tags))
    return len(found.intersection(slot_spans(reference_tags))), len(found)


def slot_f1(right: int, found: int, wanted: int) -> float:
    """Return the micro-averaged F1 of the slots of a corpus; 1 if there are none and none was found."""
    return 2 * right / (found + wanted) if found + wanted else 1.0


def ser_interval(errors: NDArray[np.int64], slots: NDArray[np.int64]) -> tuple[float, float]:
    """Return the 95 % interval of SER by a percentile bootstrap over utterances, with a fixed seed.

    It is an interval for other utterances with the same model. Utterances with equal errors and slots are drawn
    together, as a multinomial. This is the same distribution as resampling them one by one, at a cost that does not
    grow with their number.

    Args:
        errors: (n,) as `semantic_errors` returns them.
        slots: (n,) likewise.
    """
    kinds, counts = np.unique(np.stack([errors, slots]), axis=1, return_counts=True)
    drawn = np.random.default_rng(0).multinomial(len(errors), counts / len(errors), size=_RESAMPLES)
    found = (drawn @ kinds[0]) / np.maximum(drawn @ kinds[1], 1)  # a resample of a small split may have no slot
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)
