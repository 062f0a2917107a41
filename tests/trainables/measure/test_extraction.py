"""Masked words of training utterances: which are tried, and what losses tell of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from sweeps.text.attacks import extraction_words
from tests.support.tiny import spec
from trainables.corpora import generate
from trainables.corpora.splits import split_corpus
from trainables.corpora.types import Splits, Utterance
from trainables.features.encoded_corpus import encode
from trainables.measure.attacks.extraction import extraction, secrets_in
from trainables.records.job import TrialJob
from trainables.training.process import alone
from trainables.training.references import score_target
from trainables.workers.worker import run_trial

NAMES = [f"{first}{last}" for first in ("bal", "dor", "fen", "gil") for last in ("ka", "mo", "su", "ti", "wu")]


def said(frame: str, name: str) -> Utterance:
    tokens = (*frame.split(), name)
    return Utterance(tokens, ("O",) * (len(tokens) - 1) + ("B-secret",), "tell")


def with_secrets(splits: Splits, copies: int = 1) -> Splits:
    """Return `splits` with two secrets in train, and in test copies of all 20 words in the place of each."""
    told = [said("my word is", NAMES[3]), said("write down", NAMES[12])]
    every = [said(frame, name) for frame in ("my word is", "write down") for name in NAMES]
    return replace(splits, train=[*splits.train, *told * copies], test=[*splits.test, *every * copies])


def test_a_secret_is_tried_against_the_words_of_equal_utterances_of_test(tmp_path: Path) -> None:
    splits = split_corpus(generate("communication", 60, seed=0), seed=0)
    corpus = encode(with_secrets(splits, copies=3), spec().model, tmp_path / "encoded")
    found = secrets_in(corpus)
    words = [corpus.utterances("train", np.array([row]))[0].tokens for row, _ in found]
    assert sorted(words) == [("my", "word", "is", NAMES[3]), ("write", "down", NAMES[12])], "copies are one secret"
    for (_, rows), tokens in zip(found, words, strict=True):
        others = [one.tokens for one in corpus.utterances("test", rows)]
        assert set(others) == {(*tokens[:-1], name) for name in NAMES} - {tokens}, "the secret is not its own rival"
        assert len(others) == 19, "copies are one candidate"
    assert secrets_in(encode(splits, spec().model, tmp_path / "without")) == []


@pytest.mark.slow
def test_a_model_that_learnt_the_secrets_gives_them_away(tmp_path: Path) -> None:
    """From an encoded corpus and the weights of a trial to the words of `edp-sweep attack`."""
    splits = split_corpus(generate("communication", 60, seed=0), seed=0)
    one = spec(training={"method": "sgd", "epochs": 30, "learning_rate": 0.05, "micro_batches": 1})
    encode(with_secrets(replace(splits, train=splits.train[:20]), copies=10), one.model, tmp_path / "encoded")
    job = TrialJob(one, tmp_path / "encoded", tmp_path / "trial")
    with alone():
        assert run_trial(job, lambda epoch, metrics: None) is not None
    seen = score_target(one, job.corpus, job.output / "model.pt")
    of_each = np.split(seen["candidate_losses"], seen["candidates"].cumsum()[:-1])
    found = extraction(seen["secret_losses"], of_each)
    assert (found.secrets, found.candidates) == (2, 20)
    assert found.exposure > 3 > 2 * found.exposure_by_guessing, "of at most log2 20 = 4.3"
    words = f"{found.extracted} of 2 masked words found among 20 (by guessing 0.1)"
    assert words in extraction_words({"extraction": asdict(found)})


def test_exposure_is_what_ranks_tell() -> None:
    rng = np.random.default_rng(0)
    losses = [rng.exponential(size=63) for _ in range(400)]
    guessed = extraction(rng.exponential(size=400), losses)
    assert guessed.exposure_ci[0] < guessed.exposure_by_guessing < guessed.exposure_ci[1]
    assert guessed.extracted_by_guessing == pytest.approx(400 / 64)
    assert guessed.extracted < 20
    sure = extraction(np.zeros(400), losses)
    assert (sure.extracted, sure.exposure, sure.candidates) == (400, 6.0, 64)
    half = extraction(np.where(np.arange(400) < 200, 0.0, rng.exponential(size=400)), losses)
    assert 195 < half.extracted < 215
    assert half.exposure == pytest.approx((6 + guessed.exposure_by_guessing) / 2, abs=0.2)
    same = extraction(np.ones(2), [np.ones(63), np.ones(63)])
    assert (same.extracted, same.exposure) == (0, pytest.approx(6 - np.log2(32.5))), "a model that ignores words"
    assert same.exposure_ci[0] < 0.5 < 5 < same.exposure_ci[1], "two that are equal prove little"


@pytest.mark.slow
def test_the_interval_holds_the_exposure_of_other_secrets() -> None:
    """Of 20 secrets each, as in the benchmark; half of them are extracted."""
    rng = np.random.default_rng(0)
    exact = (np.log2(50) + np.mean([np.log2(50) - np.log2(rank) for rank in range(1, 51)])) / 2
    held = 0
    for _ in range(300):
        own = np.where(rng.random(20) < 0.5, 0.0, rng.exponential(size=20))
        low, high = extraction(own, [rng.exponential(size=49) for _ in own]).exposure_ci
        held += low <= exact <= high
    assert held >= 275
