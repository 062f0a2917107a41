"""The re-split: about 45:5:50, disjoint, the same everywhere, and by each utterance's words alone."""

from __future__ import annotations

import unicodedata
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edp.spec import UserError
from trainables.corpora import Splits, Utterance, split_corpus
from trainables.corpora.splits import sample_corpus
from trainables.features.word_pieces import _as_seen


def plain(text: str, intent: str = "i") -> Utterance:
    tokens = tuple(text.split())
    return Utterance(tokens, ("O",) * len(tokens), intent)


def parts(splits: Splits) -> list[list[Utterance]]:
    return [splits.train, splits.valid, splits.test]


NUMBERS = st.lists(st.integers(0, 400), min_size=0, max_size=80)


@settings(max_examples=60, deadline=None)
@given(copies=NUMBERS, distinct=st.integers(20, 300), seed=st.integers(0, 2**40), data=st.data())
@pytest.mark.slow
def test_splits_are_disjoint_whole_and_in_the_corpus_order_and_no_utterance_moves_another(
    copies: list[int], distinct: int, seed: int, data: st.DataObject
) -> None:
    utterances = [plain(f"say {number}") for number in range(distinct)]
    utterances += [plain(f"say {number % distinct}", intent="other") for number in copies]
    splits = split_corpus(utterances, seed)
    assert sorted(chain(*parts(splits))) == sorted(utterances)
    tokens = [{utterance.tokens for utterance in part} for part in parts(splits)]
    assert not tokens[0] & tokens[1]
    assert not tokens[0] & tokens[2]
    assert not tokens[1] & tokens[2]
    assert tokens[1]
    assert tokens[2]
    assert splits.train == [one for one in utterances if one.tokens in tokens[0]]
    gone = data.draw(st.integers(0, len(utterances) - 1))
    fewer = utterances[:gone] + utterances[gone + 1 :]
    if len({one.tokens for one in fewer}) < 20:
        return
    train = split_corpus(fewer, seed).train
    left = list(splits.train)
    if utterances[gone].tokens in tokens[0]:
        left.remove(utterances[gone])
    assert sorted(train) == sorted(left)


def test_the_split_is_in_ratio() -> None:
    sizes = [len(part) for part in parts(split_corpus([plain(f"say {number}") for number in range(20_000)], seed=0))]
    assert sizes == pytest.approx([9_000, 1_000, 10_000], abs=5 * 71)


def test_the_split_is_pinned_across_machines_and_versions() -> None:
    splits = split_corpus([plain(f"say {number}") for number in range(20)], seed=1)
    assert [[int(utterance.tokens[1]) for utterance in part] for part in parts(splits)] == [
        [0, 2, 3, 4, 12, 13, 18, 19],
        [10],
        [1, 5, 6, 7, 8, 9, 11, 14, 15, 16, 17],
    ]


def test_labels_do_not_decide_about_the_split() -> None:
    one_label = [plain(f"say {number}") for number in range(300)]
    every_label = [plain(f"say {number}", intent=f"i{number}") for number in range(300)]
    assert [[u.tokens for u in part] for part in parts(split_corpus(one_label, 0))] == [
        [u.tokens for u in part] for part in parts(split_corpus(every_label, 0))
    ]


def test_a_sample_is_of_about_its_size_and_no_utterance_moves_another() -> None:
    utterances = [plain(f"say {number}") for number in range(2_000)]
    sample = sample_corpus(utterances, 500, seed=3)
    assert len(sample) == pytest.approx(500, abs=5 * 20)
    assert sample == [one for one in utterances if one in set(sample)]
    in_its_place = [*utterances[:7], plain("blank"), *utterances[8:]]
    assert set(sample_corpus(in_its_place, 500, seed=3)) - {plain("blank")} == set(sample) - {utterances[7]}


def test_fewer_than_twenty_distinct_utterances_are_refused() -> None:
    with pytest.raises(UserError, match="19 distinct utterances; allowed: at least 20"):
        split_corpus([plain(f"say {number % 19}") for number in range(100)], seed=0)


@pytest.mark.parametrize("seed", range(3))
def test_what_an_encoder_in_lower_case_reads_alike_stands_in_one_split(seed: int) -> None:
    accents = str.maketrans("aeiouc", "áèîöũç")
    texts = [f"quick nice {city} {n}" for n in range(30) for city in ("lyon", "porto", "graz")]
    others = [(text if n % 3 else text.upper()).translate(accents) for n, text in enumerate(texts)]
    others += [unicodedata.normalize("NFD", text) for text in others[::2]]
    others += [text.replace("n", "n\u200d") for text in texts[::4]]
    utterances = [plain(text) for text in (*texts, *others)]
    as_read = [
        {tuple(part for word in u.tokens for part in _as_seen(word)) for u in part}
        for part in parts(split_corpus(utterances, seed))
    ]
    assert sum(map(len, as_read)) == len(set().union(*as_read)) == len(texts)


@pytest.mark.parametrize("seed", range(20))
def test_valid_and_test_have_an_utterance_in_the_smallest_corpus(seed: int) -> None:
    utterances = [plain(f"say {number}") for number in range(20)]
    assert all(parts(split_corpus(utterances, seed)))
