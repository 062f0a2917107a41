"""Word vectors: public, of one length, for any string, the same again after saving."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edp.spec import UserError
from trainables.features.embeddings import WordVectors

SENTENCES = [["play", "a", "song"], ["play", "the", "radio"], ["call", "bob", "now"], ["what", "a", "song"]] * 5
ANYTHING = ["song", "Song", "songs", "zzz", "q", "", "überraschung", "0123"]


@pytest.fixture(scope="module")
def trained() -> WordVectors:
    return WordVectors.train(SENTENCES, size=12, epochs=2, seed=3)


def test_any_string_has_a_vector_of_one_length(trained: WordVectors) -> None:
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


def test_a_vec_file_hashes_the_words_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "public.vec"
    path.write_text("3 4\nsong 1 0 0 0\nplay 0 1 0 0\nthe 0 0 1 0.5\n")
    vectors = WordVectors.read(path, 4)
    known, unknown, again, other = vectors.vectors(["song", "zebra", "zebra", "zebras"])
    np.testing.assert_allclose(unknown, again, atol=1e-6)
    assert not np.allclose(unknown, other)
    assert np.linalg.norm(known) == pytest.approx(2, rel=1e-5)
    vectors.save(tmp_path / "saved")
    np.testing.assert_allclose(WordVectors.load(tmp_path / "saved").vectors(["zebra"])[0], unknown, atol=1e-6)


def test_a_bin_file_gives_unknown_words_their_ngrams(tmp_path: Path) -> None:
    from gensim.models import FastText
    from gensim.models.fasttext import save_facebook_model

    model = FastText(SENTENCES, vector_size=6, min_count=1, bucket=100, epochs=1, workers=1)
    save_facebook_model(model, str(tmp_path / "public.bin"))
    vectors = WordVectors.read(tmp_path / "public.bin", 6)
    assert vectors.vectors(["song", "songbird"]).shape == (2, 6)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("missing.vec", None, "is missing"),
        ("vectors.txt", "1 4\na 1 2 3 4\n", "is not a .vec or .bin file"),
        ("broken.vec", "nonsense\n", "cannot be read"),
        ("broken.bin", "nonsense\n", "cannot be read"),
        ("small.vec", "1 3\na 1 2 3\n", "embedding_size = 3"),
    ],
)
def test_a_file_that_does_not_serve_is_named_in_one_line(
    tmp_path: Path, name: str, content: str | None, named: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=r"embeddings\.path = ") as raised:
        WordVectors.read(tmp_path / name, 4)
    assert named in str(raised.value)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_public_corpus_without_words_is_refused() -> None:
    with pytest.raises(UserError, match=r"embeddings\.corpus"):
        WordVectors.train([], size=4, epochs=1)
