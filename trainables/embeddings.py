"""Word vectors that are a public function of a word's string: fastText, never trained on the private corpus.

A word that the public corpus lacks gets a vector of its character n-grams, or, where there are none, one
drawn from a hash of its string; so the table of a private corpus' words says nothing that its words do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edp.spec import UserError

_NGRAM_BUCKETS = 20_000  # 24 MB at 300 dimensions; a small public corpus has fewer n-grams than that


class WordVectors:
    """fastText vectors of unit length, for any string.

    Args:
        words: the public vocabulary.
        vectors_vd: their vectors, (V, D) float32.
        ngrams_nd: vectors of the hashed character n-grams, (N, D) float32; without them unknown words are
            hashed.
        ngram_lengths: shortest and longest n-gram.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors_vd: np.ndarray,
        ngrams_nd: np.ndarray | None = None,
        ngram_lengths: tuple[int, int] = (3, 6),
    ) -> None:
        self._row = {word: row for row, word in enumerate(words)}
        self._vectors_vd = vectors_vd
        self._ngrams_nd = ngrams_nd
        self._ngram_lengths = ngram_lengths

    @property
    def size(self) -> int:
        """D, the dimensions of a vector."""
        return int(self._vectors_vd.shape[1])

    @classmethod
    def train(
        cls, utterances: Iterable[Sequence[str]], *, size: int, epochs: int, seed: int = 0
    ) -> WordVectors:
        """Train fastText (skip-gram) on public token sequences; the same seed gives the same vectors.

        Raises:
            UserError: for utterances without a word.
        """
        from gensim.models import FastText  # slow to import, and only a sweep's first minute needs it

        sentences = [[word.lower() for word in tokens] for tokens in utterances]
        if not any(sentences):
            raise UserError("embeddings.corpus has no words; allowed: a public corpus with at least one")
        model = FastText(
            sentences,
            vector_size=size,
            sg=1,
            min_count=1,
            bucket=_NGRAM_BUCKETS,
            epochs=epochs,
            seed=seed,
            workers=1,  # threads race, and then a seed no longer fixes the result
        )
        wv = model.wv
        return cls(wv.index_to_key, wv.vectors, wv.vectors_ngrams, (wv.min_n, wv.max_n))

    @classmethod
    def read(cls, path: Path, size: int) -> WordVectors:
        """Read fastText's `.vec` (text, no n-grams) or `.bin` (with n-grams).

        Raises:
            UserError: for a file that is missing, is neither, cannot be read, or is not of `size` dimensions.
        """
        from gensim.models import KeyedVectors
        from gensim.models.fasttext import load_facebook_vectors

        if path.suffix not in (".vec", ".bin"):
            raise UserError(f"embeddings.path = {path} is no .vec or .bin file; allowed: one of the two")
        if not path.is_file():
            raise UserError(f"embeddings.path = {path} does not exist; allowed: a fastText .vec or .bin file")
        try:
            if path.suffix == ".bin":
                wv = load_facebook_vectors(str(path))
                vectors = cls(wv.index_to_key, wv.vectors, wv.vectors_ngrams, (wv.min_n, wv.max_n))
            else:
                wv = KeyedVectors.load_word2vec_format(str(path))
                vectors = cls(wv.index_to_key, wv.vectors)
        except Exception as error:  # gensim raises whatever its parser stumbles over
            raise UserError(
                f"embeddings.path = {path} cannot be read as fastText vectors ({error})"
            ) from error
        if vectors.size != size:
            raise UserError(
                f"embeddings.path = {path} has vectors of {vectors.size} dimensions and "
                f"embedding_size = {size}; allowed: embedding_size = {vectors.size}, or another file"
            )
        return vectors

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Vectors of any words, (W, D) float32, of length sqrt(D): entries of about unit size, as a network
        likes.

        One length for all, because a small corpus' fastText gives unseen words an n-gram average a tenth as
        long as a frequent word's vector, which the layers above would not see.
        """
        out_wd = np.empty((len(words), self.size), np.float32)
        for row, word in enumerate(words):
            out_wd[row] = self._raw(word)
        length_w1 = np.linalg.norm(out_wd, axis=1, keepdims=True)
        out_wd *= np.sqrt(self.size) / np.maximum(length_w1, 1e-12)
        return out_wd

    def _raw(self, word: str) -> np.ndarray:
        row = self._row.get(word, self._row.get(word.lower()))
        if row is not None:
            return np.asarray(self._vectors_vd[row])
        if self._ngrams_nd is not None:
            from gensim.models.fasttext import ft_ngram_hashes

            ngrams = ft_ngram_hashes(word, *self._ngram_lengths, len(self._ngrams_nd))
            if ngrams:
                return np.asarray(self._ngrams_nd[ngrams].mean(0))
        return _hashed(word, self.size)

    def save(self, folder: Path) -> None:
        """Write the vectors to a new folder, from which `load` maps them."""
        folder.mkdir(parents=True)
        np.save(folder / "vectors.npy", self._vectors_vd)
        if self._ngrams_nd is not None:
            np.save(folder / "ngrams.npy", self._ngrams_nd)
        about = {"words": list(self._row), "ngram_lengths": list(self._ngram_lengths)}
        (folder / "words.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WordVectors:
        """Read what `save` wrote; the tables stay on disk until a word asks for them."""
        about = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        ngrams = folder / "ngrams.npy"
        return cls(
            about["words"],
            np.load(folder / "vectors.npy", mmap_mode="r"),
            np.load(ngrams, mmap_mode="r") if ngrams.exists() else None,
            tuple(about["ngram_lengths"]),
        )


def _hashed(word: str, size: int) -> np.ndarray:
    """A direction drawn from the word's hash, (D,): the same with every version of NumPy."""
    digest = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(2 * size)
    return np.frombuffer(digest, "<u2").astype(np.float32) - np.float32(32767.5)
