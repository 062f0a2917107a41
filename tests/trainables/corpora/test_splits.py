"""The re-split: 45:5:50, disjoint, the same everywhere, and every label can be learned."""

from __future__ import annotations

import random
import unicodedata
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.spec import UserError
from trainables.corpora import Splits, Utterance, generate, split_corpus
from trainables.corpora.splits import has_accented_twins
from trainables.features.word_pieces import _as_seen


def plain(text: str, intent: str = "i") -> Utterance:
    tokens = tuple(text.split())
    return Utterance(tokens, ("O",) * len(tokens), intent)


def parts(splits: Splits) -> list[list[Utterance]]:
    return [splits.train, splits.valid, splits.test]


NUMBERS = st.lists(st.integers(0, 400), min_size=0, max_size=80)


@settings(max_examples=60, deadline=None)
@given(copies=NUMBERS, distinct=st.integers(20, 300), seed=st.integers(0, 2**40), shuffle=st.randoms())
@pytest.mark.slow
def test_splits_are_disjoint_whole_in_ratio_and_independent_of_order(
    copies: list[int], distinct: int, seed: int, shuffle: random.Random
) -> None:
    utterances = [plain(f"say {number}") for number in range(distinct)]
    utterances += [plain(f"say {number % distinct}", intent="other") for number in copies]
    try:
        splits = split_corpus(utterances, seed)
    except UserError:
        pytest.fail("two labels fit any corpus")
    assert sorted(chain(*parts(splits))) == sorted(utterances)
    tokens = [{utterance.tokens for utterance in part} for part in parts(splits)]
    assert not tokens[0] & tokens[1]
    assert not tokens[0] & tokens[2]
    assert not tokens[1] & tokens[2]
    assert abs(len(tokens[0]) - 0.45 * distinct) <= 1
    assert abs(len(tokens[1]) - 0.05 * distinct) <= 1
    assert tokens[1]
    shuffle.shuffle(utterances)
    assert split_corpus(utterances, seed) == splits


def test_the_split_is_pinned_across_machines_and_versions() -> None:
    splits = split_corpus([plain(f"say {number}") for number in range(20)], seed=1)
    assert [[int(utterance.tokens[1]) for utterance in part] for part in parts(splits)] == [
        [5, 17, 12, 8, 10, 6, 4, 2, 14],
        [9],
        [7, 1, 0, 18, 15, 19, 11, 3, 16, 13],
    ]


def test_another_seed_splits_otherwise() -> None:
    utterances = generate("video", 500, seed=0)
    assert split_corpus(utterances, 0).train != split_corpus(utterances, 1).train


@pytest.mark.parametrize("seed", range(10))
def test_a_label_of_a_single_utterance_stands_in_train(seed: int) -> None:
    utterances = [plain(f"say {number}") for number in range(200)]
    utterances += [plain(f"rare {number}", intent=f"rare{number}") for number in range(40)]
    utterances.append(Utterance(("here", "it", "is"), ("O", "B-only", "I-only"), "i"))
    splits = split_corpus(utterances, seed)
    assert {u.intent for u in utterances} == {u.intent for u in splits.train}
    assert {tag for u in splits.train for tag in u.tags} == {"O", "B-only", "I-only"}
    assert len(splits.train) == round(0.45 * 241)


@pytest.mark.parametrize("seed", range(10))
def test_frequent_labels_leave_the_random_split_as_it_is(seed: int) -> None:
    """The exchange for rare labels is a bias of membership: it stays out of corpora without them."""
    one_label = [plain(f"say {number}") for number in range(300)]
    two_labels = [plain(f"say {number}", intent=f"i{number % 2}") for number in range(300)]
    assert [[u.tokens for u in part] for part in parts(split_corpus(one_label, seed))] == [
        [u.tokens for u in part] for part in parts(split_corpus(two_labels, seed))
    ]


def test_more_labels_than_train_can_hold_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"^intent \w+ would be in valid or test only"):
        split_corpus([plain(f"say {number}", intent=f"i{number}") for number in range(40)], seed=0)


def test_fewer_than_twenty_distinct_utterances_are_refused() -> None:
    with pytest.raises(UserError, match="19 distinct utterances; allowed: at least 20"):
        split_corpus([plain(f"say {number % 19}") for number in range(100)], seed=0)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_words_in_another_case_stand_in_one_split(seed: int) -> None:
    lower = [plain(f"say number {n}") for n in range(200)]
    found = split_corpus([*lower, *(plain(f"Say Number {n}") for n in range(60))], seed)
    texts = [{" ".join(utterance.tokens).lower() for utterance in part} for part in parts(found)]
    assert sum(map(len, texts)) == 200
    assert abs(len({u.tokens for u in found.train}) - 0.45 * 260) <= 2
    assert [len(part) for part in parts(split_corpus(lower, seed))] == [90, 10, 100]


def test_unicodes_forms_of_a_word_stand_in_one_split() -> None:
    forms = [form for n in range(60) for form in (f"café {n}", f"cafe\u0301 {n}", f"straße {n}", f"STRASSE {n}")]
    splits = split_corpus([plain(text) for text in forms], seed=0)
    folded = [{unicodedata.normalize("NFC", " ".join(u.tokens)).casefold() for u in part} for part in parts(splits)]
    assert sum(map(len, folded)) == len(set().union(*folded)) == 120


@pytest.mark.parametrize("seed", range(3))
def test_what_an_encoder_in_lower_case_reads_alike_stands_in_one_split(seed: int) -> None:
    accents = str.maketrans("aeiouc", "áèîöũç")
    texts = [f"quick nice {city} {n}" for n in range(30) for city in ("lyon", "porto", "graz")]
    others = [(text if n % 3 else text.upper()).translate(accents) for n, text in enumerate(texts)]
    others += [unicodedata.normalize("NFD", text) for text in others[::2]]
    others += [text.replace("n", "n\u200d") for text in texts[::4]]
    utterances = [plain(text) for text in (*texts, *others)]
    assert has_accented_twins(utterances)
    assert not has_accented_twins(plain(text) for text in texts)
    as_read = [
        {tuple(part for word in u.tokens for part in _as_seen(word)) for u in part}
        for part in parts(split_corpus(utterances, seed))
    ]
    assert sum(map(len, as_read)) == len(set().union(*as_read)) == len(texts)


@pytest.mark.parametrize("seed", range(6))
def test_every_part_has_an_utterance_however_large_a_group_is(seed: int) -> None:
    word = "abcdefg"
    variants = ["".join(c.upper() if n >> i & 1 else c for i, c in enumerate(word)) for n in range(128)]
    splits = split_corpus([plain(text) for text in (*variants, *(f"say {n}" for n in range(40)))], seed)
    assert all(parts(splits))
    assert sum(map(len, parts(splits))) == 168
