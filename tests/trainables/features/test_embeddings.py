"""Word vectors: public, of one length, for any string, the same again after saving."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from edp.spec import UserError
from trainables.features.embeddings import WordVectors

SENTENCES = [["play", "a", "song"], ["play", "the", "radio"], ["call", "bob", "now"], ["what", "a", "song"]] * 5
ANYTHING = ["song", "Song", "songs", "zzz", "q", "überraschung", "0123"]


@pytest.fixture(scope="module")
def trained() -> WordVectors:
    return WordVectors.train(SENTENCES, size=12, epochs=2, seed=3)


def test_any_word_has_a_vector_of_one_length(trained: WordVectors) -> None:
    vectors_wd = trained.vectors(ANYTHING)
    assert vectors_wd.shape == (len(ANYTHING), 12)
    assert vectors_wd.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors_wd, axis=1), np.sqrt(12), rtol=1e-5)


def test_a_words_vector_does_not_depend_on_the_words_beside_it(trained: WordVectors) -> None:
    alone = np.concatenate([trained.vectors([word]) for word in ANYTHING])
    np.testing.assert_allclose(trained.vectors(ANYTHING), alone, atol=1e-5)


@pytest.mark.slow
def test_training_is_the_same_for_a_seed_in_another_process(trained: WordVectors) -> None:
    code = (
        "from trainables.features.embeddings import WordVectors;"
        "from tests.trainables.features.test_embeddings import SENTENCES;"
        "vectors = WordVectors.train(SENTENCES, size=12, epochs=2, seed=3);"
        "print(vectors.vectors(['song', 'zzz']).tobytes().hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    other = np.frombuffer(bytes.fromhex(done.stdout.strip()), np.float32).reshape(2, 12)
    np.testing.assert_allclose(other, trained.vectors(["song", "zzz"]), atol=1e-5)


def test_a_public_corpus_without_words_is_refused() -> None:
    with pytest.raises(UserError, match=r"embeddings\.corpus"):
        WordVectors.train([], size=4, epochs=1)
