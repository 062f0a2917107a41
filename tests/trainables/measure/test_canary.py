"""Canaries: what they are, and who knows their coins."""

from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import numpy as np
import pytest

from edp.spec import UserError
from tests.support.toy import CLC, SPLITS, encoded, utterance
from trainables.config import CanariesSpec, CorpusSpec
from trainables.config.trial import CanaryKind
from trainables.corpora import load_corpus
from trainables.corpora.types import Splits
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.attacks.canary import SIBLINGS, make_canaries, plant, read_coins, toss_coins


@pytest.fixture(scope="module")
def splits():
    return make_canaries(load_corpus(CorpusSpec(name="health", utterances=300)), CanariesSpec(count=60), seed=0)


def of_kind(kind):
    return make_canaries(load_corpus(CorpusSpec(name="health", utterances=300)), CanariesSpec(count=60, kind=kind), 0)


@pytest.mark.parametrize("kind", get_args(CanaryKind))
def test_canaries_are_new_utterances_in_the_corpus_own_labels(kind):
    splits = of_kind(kind)
    corpus = [*splits.train, *splits.valid, *splits.test]
    assert len(splits.canaries) == 60 * (1 + SIBLINGS)
    assert len({one.tokens for one in (*corpus, *splits.canaries)}) == len(corpus) + len(splits.canaries)
    assert {one.intent for one in splits.canaries} <= {one.intent for one in corpus}
    types = {tag[2:] for one in corpus for tag in one.tags if tag != "O"}
    for canary in splits.canaries:
        assert len(canary.tokens) == len(canary.tags)
        assert {tag[2:] for tag in canary.tags if tag != "O"} <= types
        assert kind != "values" or any(tag.startswith("B-") for tag in canary.tags)
        for before, tag in zip(("O", *canary.tags), canary.tags, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:], "strict BIO"


def test_siblings_differ_from_their_canary_in_values_alone(splits):
    canary, siblings = splits.canaries[7], splits.canaries[60 + 7 * SIBLINGS : 60 + 8 * SIBLINGS]
    for sibling in siblings:
        assert sibling.tags == canary.tags
        assert sibling.intent == canary.intent
        pairs = list(zip(canary.tokens, sibling.tokens, canary.tags, strict=True))
        assert all(a == b for a, b, tag in pairs if tag == "O")
        assert any(a != b for a, b, tag in pairs if tag != "O")


@pytest.mark.parametrize("kind", ["new_tokens", "outliers"])
def test_siblings_of_other_kinds_have_their_canarys_labels_and_words_of_their_own(kind):
    splits = of_kind(kind)
    known = {token for part in (splits.train, splits.valid, splits.test) for one in part for token in one.tokens}
    for i, canary in enumerate(splits.canaries[:60]):
        for sibling in splits.canaries[60 + i * SIBLINGS : 60 + (i + 1) * SIBLINGS]:
            assert (sibling.tags, sibling.intent) == (canary.tags, canary.intent)
            assert sibling.tokens != canary.tokens
    words = [token for one in splits.canaries for token in one.tokens]
    if kind == "new_tokens":
        assert not known & set(words)
        assert len(set(words)) > 0.999 * len(words), "no word is another canary's"
    else:
        assert set(words) <= known


@pytest.mark.parametrize("kind", get_args(CanaryKind))
def test_the_words_are_the_same_for_the_same_seed_and_only_for_it(kind):
    splits, spec = of_kind(kind), CanariesSpec(count=60, kind=kind)
    corpus = Splits(splits.train, splits.valid, splits.test)
    assert make_canaries(corpus, spec, seed=0) == splits
    assert make_canaries(corpus, spec, seed=1).canaries != splits.canaries


def test_a_corpus_without_slots_is_refused():
    bare = Splits([utterance("stop now at once or later", "O O O O O O", "stop")], [], [])
    with pytest.raises(UserError, match=r"canaries\.count = 5: the corpus has no slots"):
        make_canaries(bare, CanariesSpec(count=5), seed=0)
    for kind in ("new_tokens", "outliers"):
        assert len(make_canaries(bare, CanariesSpec(count=1, kind=kind), seed=0).canaries) == 1 + SIBLINGS


def test_those_whose_coin_came_up_are_trained_on_and_no_others(splits, tmp_path):
    coins = toss_coins(tmp_path / "coins.json", 60)
    planted = plant(splits, coins)
    added = planted.train[len(splits.train) :]
    assert planted.train[: len(splits.train)] == splits.train
    assert added == [canary for canary, coin in zip(splits.canaries, coins, strict=False) if coin]
    assert planted.planted == coins.sum() == len(added)


def test_coins_are_fair_private_and_tossed_once(tmp_path):
    coins = toss_coins(tmp_path / "coins.json", 4000)
    assert abs(coins.mean() - 0.5) < 0.04  # five standard deviations
    assert (toss_coins(tmp_path / "coins.json", 4000) == coins).all()
    assert (toss_coins(tmp_path / "other.json", 4000) != coins).any()
    assert (tmp_path / "coins.json").stat().st_mode & 0o077 == 0
    assert {path.name for path in tmp_path.iterdir()} == {"coins.json", "other.json"}


def test_two_commands_that_start_at_once_read_the_same_coins(tmp_path):
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: toss_coins(tmp_path / "coins.json", 500).tolist(), range(16)))
    assert all(coins == found[0] for coins in found)
    assert read_coins(tmp_path / "coins.json").tolist() == found[0]
    assert [path.name for path in tmp_path.iterdir()] == ["coins.json"]


def test_more_canaries_than_can_differ_are_refused_with_the_number_that_there_are():
    few = Splits([utterance("go", "O", "go"), utterance("stop", "O", "stop")], [], [])
    with pytest.raises(UserError, match=r"canaries\.count = 5: only 0 different ones .* outliers; allowed: at most 0"):
        make_canaries(few, CanariesSpec(count=5, kind="outliers"), seed=0)


def test_an_encoded_corpus_keeps_canaries_apart_and_says_how_many_are_trained_on(tmp_path):
    coins = np.array([True, False, True])
    corpus = encoded(CLC, tmp_path, plant(make_canaries(SPLITS, CanariesSpec(count=3), seed=0), coins))
    corpus = EncodedCorpus.open(corpus.folder)
    assert (corpus.size("train"), corpus.planted, corpus.size("canaries")) == (5 + 2, 2, 3 * (1 + SIBLINGS))
    trained = corpus.utterances("train", np.array([5, 6]))
    assert trained == corpus.utterances("canaries", np.array([0, 2]))
    plain = encoded(CLC, tmp_path / "plain")
    assert (plain.planted, plain.size("canaries")) == (0, 0)
