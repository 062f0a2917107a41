"""Masked words of training utterances: which are tried, and what losses tell of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.tiny import spec
from trainables.corpora import generate
from trainables.corpora.splits import split_corpus
from trainables.corpora.types import Splits, Utterance
from trainables.features.encoded_corpus import encode
from trainables.measure.attacks.extraction import extraction, secrets_in

NAMES = [f"{first}{last}" for first in ("bal", "dor", "fen", "gil") for last in ("ka", "mo", "su", "ti", "wu")]


def said(frame: str, name: str) -> Utterance:
    tokens = (*frame.split(), name)
    return Utterance(tokens, ("O",) * (len(tokens) - 1) + ("B-secret",), "tell")


def with_secrets(splits: Splits, copies: int = 1) -> Splits:
    """Return `splits` with two secrets in train, and 19 candidates of each in test."""
    told = [said("my word is", NAMES[3]), said("write down", NAMES[12])] * copies
    candidates = [said(frame, name) for frame in ("my word is", "write down") for name in NAMES]
    return replace(
        splits, train=[*splits.train, *told], test=[*splits.test, *(one for one in candidates if one not in told)]
    )


def test_a_secret_is_tried_against_the_words_of_equal_utterances_of_test(tmp_path: Path) -> None:
    splits = split_corpus(generate("communication", 60, seed=0), seed=0)
    corpus = encode(with_secrets(splits, copies=3), spec().model, tmp_path / "encoded")
    found = secrets_in(corpus)
    words = [corpus.utterances("train", np.array([row]))[0].tokens for row, _ in found]
    assert sorted(words) == [("my", "word", "is", NAMES[3]), ("write", "down", NAMES[12])], "copies are one secret"
    for (_, rows), tokens in zip(found, words, strict=True):
        others = {one.tokens for one in corpus.utterances("test", rows)}
        assert others == {(*tokens[:-1], name) for name in NAMES} - {tokens}
    assert secrets_in(encode(splits, spec().model, tmp_path / "without")) == []


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
