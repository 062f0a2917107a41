"""Word vectors that are a public function of a word's string: fastText, never trained on the private corpus.

A word that the public corpus lacks has a vector from its character n-grams. So a table of vectors for the words of a
private corpus reveals no more than the words themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edp.spec import UserError

_NGRAM_BUCKETS = 20_000  # 24 MB at 300 dimensions; a small public corpus has fewer n-grams
_WHITENING_WORDS = 50_000  # the most frequent words, enough for a 300 x 300 covariance
_WHITENING_FLOOR = 0.1  # a share of the mean deviation: directions with little variance are not blown up


class WordVectors:
    """Vectors of fastText for any word, whitened and scaled to the same length.

    Args:
        words: the public vocabulary, most frequent first.
        vectors_vd: the vectors of `words`, (V, D) float32.
        ngrams_nd: the vectors of hashed character n-grams, (N, D) float32.
        ngram_lengths: the lengths of the shortest and longest n-gram.
        whitening: a mean (D,) and matrix (D, D); None: compute them.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors_vd: np.ndarray,
        ngrams_nd: np.ndarray,
        ngram_lengths: tuple[int, int] = (3, 6),
        whitening: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        self._row = {word: row for row, word in enumerate(words)}
        self._vectors_vd = vectors_vd
        self._ngrams_nd = ngrams_nd
        self._ngram_lengths = ngram_lengths
        self._mean_d, self._whiten_dd = whitening or _whitening(vectors_vd[:_WHITENING_WORDS])

    @property
    def size(self) -> int:
        """The dimensions of a vector, D."""
        return int(self._vectors_vd.shape[1])

    @classmethod
    def train(cls, utterances: Iterable[Sequence[str]], *, size: int, epochs: int, seed: int = 0) -> WordVectors:
        """Train fastText (skip-gram) on public token sequences; the same seed gives the same vectors.

        Raises:
            UserError: for utterances without a word.
        """
        from gensim.models import FastText  # slow to import, and needed only at the start of a sweep

        sentences = [[word.lower() for word in tokens] for tokens in utterances]
        if not any(sentences):
            raise UserError("model.embeddings.corpus has no words; allowed: a public corpus with at least one")
        model = FastText(
            sentences,
            vector_size=size,
            sg=1,
            min_count=1,
            bucket=_NGRAM_BUCKETS,
            epochs=epochs,
            seed=seed,
            workers=1,  # with several threads, results differ from run to run
        )
        wv = model.wv
        return cls(wv.index_to_key, wv.vectors, wv.vectors_ngrams, (wv.min_n, wv.max_n))

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of any words, (W, D) float32, whitened and of length sqrt(D).

        Without whitening, all words look alike to a network: trained on a small corpus, fastText has nearly all its
        variance in a few directions, and the n-gram average of an unseen word is far shorter than the vector of a
        frequent one. After five epochs of CLC on ATIS with vectors from SNIPS, SER was 24 % without whitening and 5 %
        with it.
        """
        raw_wd = np.empty((len(words), self.size), np.float32)
        for row, word in enumerate(words):
            raw_wd[row] = self._raw(word)
        white_wd = (_unit(raw_wd) - self._mean_d) @ self._whiten_dd
        return _unit(white_wd) * np.float32(np.sqrt(self.size))

    def _raw(self, word: str) -> np.ndarray:
        """Return the vector of a word before whitening, (D,)."""
        row = self._row.get(word, self._row.get(word.lower()))
        if row is not None:
            return np.asarray(self._vectors_vd[row])
        from gensim.models.fasttext import ft_ngram_hashes

        ngrams = ft_ngram_hashes(word, *self._ngram_lengths, len(self._ngrams_nd))
        return np.asarray(self._ngrams_nd[ngrams].mean(0))

    def save(self, folder: Path) -> None:
        """Write the vectors to a new folder that `load` reads."""
        folder.mkdir(parents=True)
        np.save(folder / "vectors.npy", self._vectors_vd)
        np.savez(folder / "whitening.npz", mean=self._mean_d, matrix=self._whiten_dd)
        np.save(folder / "ngrams.npy", self._ngrams_nd)
        about = {"words": list(self._row), "ngram_lengths": list(self._ngram_lengths)}
        (folder / "words.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WordVectors:
        """Read the vectors that `save` wrote; the tables are mapped, not read."""
        about = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        whitening = np.load(folder / "whitening.npz")
        return cls(
            about["words"],
            np.load(folder / "vectors.npy", mmap_mode="r"),
            np.load(folder / "ngrams.npy", mmap_mode="r"),
            tuple(about["ngram_lengths"]),
            (whitening["mean"], whitening["matrix"]),
        )


def _unit(vectors_wd: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1."""
    length_w1: np.ndarray = np.linalg.norm(vectors_wd, axis=1, keepdims=True)
    return np.asarray(vectors_wd / np.maximum(length_w1, 1e-12))


def _whitening(vectors_vd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (D,) and the symmetric matrix (D, D) that give all directions about the same variance."""
    unit_vd = _unit(np.asarray(vectors_vd, np.float64))
    mean_d = unit_vd.mean(0)
    variances_d, directions_dd = np.linalg.eigh((unit_vd - mean_d).T @ (unit_vd - mean_d) / len(unit_vd))
    deviations_d = np.sqrt(np.maximum(variances_d, 0))
    gains_d = 1 / (deviations_d + max(_WHITENING_FLOOR * deviations_d.mean(), 1e-6))
    # Symmetric, so that it does not depend on the signs that eigh chooses.
    return mean_d.astype(np.float32), ((directions_dd * gains_d) @ directions_dd.T).astype(np.float32)
