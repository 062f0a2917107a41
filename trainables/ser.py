"""How useful a model is: semantic error rate, intent accuracy and slot F1.

SER (Su et al. 2018): (S + I + D) / (C + S + D) over the corpus, slots aligned in order with the fewest edits,
and the intent one more slot of every utterance. With the fewest edits, S + I + D is the edit distance of the
two slot lists, and C + S + D is how many slots the reference has; both are counted an utterance, so that a
bootstrap can redraw them.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trainables.encoding import EncodedCorpus, Split
from trainables.models.joint import JointModel

Slot = tuple[str, tuple[Hashable, ...]]


@dataclass(frozen=True)
class EvalResult:
    """Figures of one split, 0..1, and what SER is made of, in the order of the indices: (n,) int64 each."""

    ser: float
    intent_accuracy: float
    slot_f1: float
    errors: np.ndarray
    slots: np.ndarray


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
    """Errors (S + I + D) and reference slots (C + S + D) of one utterance, the intent counted as a slot."""
    reference = slots_of(reference_tags, tokens)
    if list(reference_tags) == list(predicted_tags):  # most utterances, once a model is trained
        wrong = 0
    else:
        wrong = edit_distance(reference, slots_of(predicted_tags, tokens))
    return wrong + (reference_intent != predicted_intent), len(reference) + 1


def semantic_error_rate(errors: np.ndarray, slots: np.ndarray) -> float:
    """SER of a corpus from its utterances' errors and reference slots."""
    return float(errors.sum() / slots.sum())


def intent_accuracy(reference: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """Share of the utterances whose intent is right."""
    return sum(r == p for r, p in zip(reference, predicted, strict=True)) / len(reference)


def slot_f1(reference_tags: list[list[str]], predicted_tags: list[list[str]]) -> float:
    """Micro-averaged F1 of slots by seqeval; 1 where there is nothing to find and nothing was found."""
    from seqeval.metrics import f1_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns where no slot is predicted, which a noisy model may do
        return float(f1_score(reference_tags, predicted_tags, zero_division=1))


def evaluate(
    model: JointModel,
    corpus: EncodedCorpus,
    split: Split,
    *,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    indices: np.ndarray | None = None,
) -> EvalResult:
    """Figures of a model on a split, or on `indices` of it. The model's mode is left as it was."""
    chosen = np.arange(corpus.size(split)) if indices is None else np.asarray(indices)
    predicted_intents = np.empty(len(chosen), np.int64)
    predicted_tags: list[list[str]] = [[]] * len(chosen)
    reference_tags: list[list[str]] = [[]] * len(chosen)
    errors, slots = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    names = corpus.labels.tags
    was_training = model.training
    model.eval()
    for places in by_length(corpus.lengths(split)[chosen], batch_size):
        with torch.inference_mode():
            intents_b, tags_bt, _ = model.decode(corpus.batch(split, chosen[places]).to(device))
        predicted_intents[places] = intents_b.cpu().numpy()
        gold = zip(corpus.tag_ids(split, chosen[places]), corpus.token_ids(split, chosen[places]), strict=True)
        for place, (tag_ids, tokens), row in zip(places, gold, tags_bt.tolist(), strict=True):
            reference = [names[tag] for tag in tag_ids]
            # what a model cannot read is O, and its rows are padded with O too
            predicted = [names[tag] for tag in row[: len(reference)]] + ["O"] * (len(reference) - len(row))
            reference_tags[place], predicted_tags[place] = reference, predicted
            errors[place], slots[place] = semantic_errors(reference, predicted, tokens.tolist(), 0, 0)
    model.train(was_training)
    reference_intents = corpus.intent_ids(split, chosen)
    errors += reference_intents != predicted_intents
    return EvalResult(
        ser=semantic_error_rate(errors, slots),
        intent_accuracy=float((reference_intents == predicted_intents).mean()),
        slot_f1=slot_f1(reference_tags, predicted_tags),
        errors=errors,
        slots=slots,
    )


def by_length(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Places of utterances of like length, `batch_size` at a time: little padding, and each place once."""
    order = np.argsort(lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
