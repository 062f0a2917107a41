"""Canaries: what they are, who knows their coins, and what the audit makes of guesses."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from edp.accounting.audit import audited_epsilon
from edp.spec import UserError
from tests.support.toy import CLC, SPLITS, encoded, utterance
from trainables.attacks.canary import (
    GUESSES,
    SIBLINGS,
    audit,
    canary_scores,
    make_canaries,
    plant,
    read_coins,
    toss_coins,
)
from trainables.corpora import load_corpus
from trainables.corpora.types import Splits
from trainables.data.encoded_corpus import EncodedCorpus
from trainables.spec import CorpusSpec


@pytest.fixture(scope="module")
def splits():
    return make_canaries(load_corpus(CorpusSpec(name="health", utterances=300)), 60, seed=0)


def test_canaries_are_new_utterances_in_the_corpus_own_labels(splits):
    corpus = [*splits.train, *splits.valid, *splits.test]
    assert len(splits.canaries) == 60 * (1 + SIBLINGS)
    assert len({one.tokens for one in (*corpus, *splits.canaries)}) == len(corpus) + len(splits.canaries)
    assert {one.intent for one in splits.canaries} <= {one.intent for one in corpus}
    types = {tag[2:] for one in corpus for tag in one.tags if tag != "O"}
    for canary in splits.canaries:
        assert len(canary.tokens) == len(canary.tags)
        assert {tag[2:] for tag in canary.tags if tag != "O"} <= types
        assert any(tag.startswith("B-") for tag in canary.tags)
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


def test_the_words_are_the_same_for_the_same_seed_and_only_for_it(splits):
    corpus = Splits(splits.train, splits.valid, splits.test)
    assert make_canaries(corpus, 60, seed=0) == splits
    assert make_canaries(corpus, 60, seed=1).canaries != splits.canaries


def test_a_corpus_without_slots_is_refused():
    bare = Splits([utterance("stop", "O", "stop")], [], [])
    with pytest.raises(UserError, match=r"canaries\.count = 5: the corpus has no slots"):
        make_canaries(bare, 5, seed=0)


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


def test_an_encoded_corpus_keeps_canaries_apart_and_says_how_many_are_trained_on(tmp_path):
    coins = np.array([True, False, True])
    corpus = encoded(CLC, tmp_path, plant(make_canaries(SPLITS, 3, seed=0), coins))
    corpus = EncodedCorpus.open(corpus.folder)
    assert (corpus.size("train"), corpus.planted, corpus.size("canaries")) == (5 + 2, 2, 3 * (1 + SIBLINGS))
    trained = corpus.utterances("train", np.array([5, 6]))
    assert trained == corpus.utterances("canaries", np.array([0, 2]))
    plain = encoded(CLC, tmp_path / "plain")
    assert (plain.planted, plain.size("canaries")) == (0, 0)


def test_a_score_is_how_many_times_less_than_its_siblings_a_canary_costs():
    own, others = np.array([1.0, 0.1]), np.array([[1.0] * SIBLINGS, [10.0] * SIBLINGS])
    scores = canary_scores(np.concatenate([own, others.ravel()]))
    assert scores == pytest.approx([0.0, np.log(100)])


def test_the_audit_takes_the_best_of_its_guesses_at_a_confidence_that_makes_all_hold():
    coins = np.arange(1000) % 2 == 0
    scores = np.where(coins, 1.0, 0.0) + np.linspace(0, 0.1, 1000)
    found = audit(scores, coins, 1e-5)
    each = 1 - 0.05 / len(GUESSES)
    bounds = [audited_epsilon(1000, r, r, 1e-5, each) for r in (50, 100, 250, 500)]
    assert found.epsilon == max(bounds)
    assert found.right == found.guesses
    assert found.metrics()["epsilon_audited"] == found.epsilon
    assert audit(-scores, coins, 1e-5).epsilon == 0


def test_guesses_that_can_show_nothing_cost_no_confidence():
    """At δ = 5e-4, of four kinds of guesses each at 98.75 %, fifty or a hundred right ones rule nothing out."""
    coins = np.arange(1000) % 2 == 0
    found = audit(np.where(coins, 1.0, 0.0), coins, 5e-4)
    assert [audited_epsilon(1000, r, r, 5e-4, 0.9875) > 0 for r in (50, 100, 250, 500)] == [False, False, True, True]
    assert found.epsilon == max(audited_epsilon(1000, r, r, 5e-4, 0.975) for r in (250, 500))
    assert audit(np.zeros(4), np.ones(4, bool), 0.4).epsilon == 0


def test_scores_that_know_nothing_rule_out_nothing_in_19_of_20_runs():
    rng = np.random.default_rng(0)
    bounds = [audit(rng.normal(size=200), rng.random(200) < 0.5, 1e-5).epsilon for _ in range(100)]
    assert np.mean(np.array(bounds) > 0) <= 0.11  # P[Bin(100, 0.05) > 11] = 0.4 %


def test_the_bound_stays_below_the_truth_of_a_gaussian_mechanism():
    """μ = 1: ε is 4.38 at δ = 1e-5. The canaries' scores are its outputs."""
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(60):
        coins = rng.random(400) < 0.5
        bounds.append(audit(rng.normal(coins * 1.0, 1.0), coins, 1e-5).epsilon)
    assert max(bounds) < 4.377
    assert np.median(bounds) > 0.1
