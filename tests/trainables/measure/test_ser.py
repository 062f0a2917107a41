"""SER's alignment against one by brute force, and a model's figures against figures by hand."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities

from trainables.measure.predictions import (
    by_length,
    edit_distance,
    semantic_error_rate,
    semantic_errors,
    slot_f1,
    slot_matches,
    slots_of,
)


@pytest.mark.parametrize(
    ("tags", "slots"),
    [
        ("O O", []),
        ("B-a I-a O", [("a", (0, 1))]),
        ("B-a B-a", [("a", (0,)), ("a", (1,))]),
        ("I-a I-a O I-b", [("a", (0, 1)), ("b", (3,))]),  # strays begin a slot
        ("B-a I-b I-b", [("a", (0,)), ("b", (1, 2))]),
        ("O B-x-y I-x-y", [("x-y", (1, 2))]),
    ],
)
def test_slots_are_read_as_conlleval_reads_them(tags: str, slots: list) -> None:
    assert slots_of(tags.split(), range(len(tags.split()))) == slots


tag_lists = st.lists(st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"]), max_size=8)


@given(tag_lists)
def test_slots_are_those_that_seqeval_finds(tags: list[str]) -> None:
    found = [(name, tuple(range(start, end + 1))) for name, start, end in get_entities(tags)]
    assert slots_of(tags, range(len(tags))) == found


def fewest_edits(reference: tuple[int, ...], hypothesis: tuple[int, ...]) -> int:
    """By trying every alignment in order."""

    @functools.cache
    def best(i: int, j: int) -> int:
        if i == len(reference) or j == len(hypothesis):
            return len(reference) - i + len(hypothesis) - j
        pair = (reference[i] != hypothesis[j]) + best(i + 1, j + 1)
        return min(pair, 1 + best(i + 1, j), 1 + best(i, j + 1))

    return best(0, 0)


slot_lists = st.lists(st.integers(0, 3), max_size=7).map(tuple)


@given(slot_lists, slot_lists)
def test_the_distance_is_that_of_the_best_alignment(reference: tuple[int, ...], hypothesis: tuple[int, ...]) -> None:
    distance = edit_distance(reference, hypothesis)
    assert distance == fewest_edits(reference, hypothesis) == edit_distance(hypothesis, reference)
    assert (distance == 0) == (reference == hypothesis)
    assert abs(len(reference) - len(hypothesis)) <= distance <= max(len(reference), len(hypothesis))


def test_errors_of_one_utterance_count_its_intent_as_a_slot() -> None:
    tokens = ["call", "my", "parents", "at", "0123"]
    gold = ["O", "O", "B-contact", "O", "B-number"]
    assert semantic_errors(gold, gold, tokens, "call", "call") == (0, 3)
    assert semantic_errors(gold, gold, tokens, "call", "text") == (1, 3)
    wrong_value = ["O", "B-contact", "I-contact", "O", "B-number"]
    assert semantic_errors(gold, wrong_value, tokens, "call", "call") == (1, 3)
    assert semantic_errors(gold, ["O"] * 5, tokens, "call", "text") == (3, 3)
    inserted = ["B-verb", "O", "B-contact", "O", "B-number"]
    assert semantic_errors(gold, inserted, tokens, "call", "call") == (1, 3)


def test_without_intents_slots_alone_count_and_without_slots_the_intent() -> None:
    gold, tokens = ["O", "B-contact"], ["call", "bob"]
    assert semantic_errors(gold, gold, tokens, None, "call") == (0, 1)
    assert semantic_errors(gold, ["O", "O"], tokens, None, "call") == (1, 1)
    assert semantic_errors(["O", "O"], ["O", "O"], tokens, "call", "text") == (1, 1)
    assert semantic_error_rate(np.array([1, 0]), np.array([0, 0])) == 1, "a split of slots alone may have none"


@given(st.lists(st.tuples(tag_lists, tag_lists), min_size=1, max_size=6))
@pytest.mark.slow
def test_f1_is_that_of_seqeval(pairs: list[tuple[list[str], list[str]]]) -> None:
    pairs = [(one[: len(other)], other[: len(one)]) for one, other in pairs]
    right, found = np.sum([slot_matches(reference, predicted) for reference, predicted in pairs], axis=0)
    wanted = sum(len(slots_of(reference, range(len(reference)))) for reference, _ in pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where there is no slot
        expected = f1_score(*([list(tags) for tags in kind] for kind in zip(*pairs, strict=True)), zero_division=1)
    assert slot_f1(int(right), int(found), wanted) == pytest.approx(expected)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 7))
def test_batches_by_length_hold_every_place_once(lengths: list[int], batch_size: int) -> None:
    batches = list(by_length(np.array(lengths, np.int64), batch_size))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert all(len(batch) <= batch_size for batch in batches)
    ordered = [lengths[place] for batch in batches for place in batch]
    assert ordered == sorted(lengths)
