"""How useful a model is: semantic error rate, intent accuracy and slot F1.

SER (Su et al. 2018): (S + I + D) / (C + S + D) over the corpus, slots aligned in order with the fewest edits,
and the intent one more slot of every utterance, where the corpus has intents. So of intents alone it is the error
rate, and of slots alone no intent is counted. With the fewest edits, S + I + D is the edit distance of the
two slot lists, and C + S + D is how many slots the reference has; both are counted an utterance, so that a
bootstrap can redraw them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

Slot = tuple[str, tuple[Hashable, ...]]


def slots_of(tags: Sequence[str], tokens: Sequence[Hashable]) -> list[Slot]:
    """Slots in order: (type, value), where the value is the tuple of tokens."""
    return [(kind, tuple(tokens[start:end])) for kind, start, end in slot_spans(tags)]


def slot_spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Slots in order: type, first token, and the token after the last. A stray I-x begins one, as in conlleval."""
    slots: list[tuple[str, int, int]] = []
    start, kind = 0, ""
    for position, tag in enumerate((*tags, "O")):
        prefix, _, name = tag.partition("-")
        if kind and (prefix != "I" or name != kind):
            slots.append((kind, start, position))
            kind = ""
        if prefix != "O" and not kind:
            start, kind = position, name
    return slots


def edit_distance(reference: Sequence[Hashable], hypothesis: Sequence[Hashable]) -> int:
    """Fewest substitutions, insertions and deletions that turn one list into the other (Levenshtein)."""
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
    """Errors (S + I + D) and reference slots (C + S + D) of one utterance, the intent counted as a slot.

    Args:
        reference_intent: None: the corpus has no intents, and none is counted.
    """
    reference = slots_of(reference_tags, tokens)
    if list(reference_tags) == list(predicted_tags):  # most utterances, once a model is trained
        wrong = 0
    else:
        wrong = edit_distance(reference, slots_of(predicted_tags, tokens))
    if reference_intent is None:
        return wrong, len(reference)
    return wrong + (reference_intent != predicted_intent), len(reference) + 1


def semantic_error_rate(errors: np.ndarray, slots: np.ndarray) -> float:
    """SER of a corpus from its utterances' errors and reference slots; where there are none, the number of errors."""
    return float(errors.sum() / max(slots.sum(), 1))


def slot_matches(reference_tags: Sequence[str], predicted_tags: Sequence[str]) -> tuple[int, int]:
    """How many of an utterance's predicted slots are right, type and place, and how many there are."""
    found = set(slot_spans(predicted_tags))
    return len(found.intersection(slot_spans(reference_tags))), len(found)


def slot_f1(right: int, found: int, wanted: int) -> float:
    """Micro-averaged F1 of a corpus' slots; 1 where there is nothing to find and nothing was found."""
    return 2 * right / (found + wanted) if found + wanted else 1.0


def by_length(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Places of utterances of like length, `batch_size` at a time: little padding, and each place once."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
