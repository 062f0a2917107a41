"""Word vectors that are a public function of a word's string: fastText, never trained on the private corpus.

A word that the public corpus lacks gets a vector of its character n-grams, or, where there are none, one
drawn from a hash of its string; so the table of a private corpus' words says nothing that its words do not.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from edp.spec import UserError

_MAGIC = 793712314  # of fastText's binary format
_NGRAM_BUCKETS = 20_000  # 24 MB at 300 dimensions; a small public corpus has fewer n-grams than that
_WHITENING_WORDS = 50_000  # of a file's millions: enough for a 300 x 300 covariance
_WHITENING_FLOOR = 0.1  # of the mean deviation: directions with next to none are not blown up without bound


class WordVectors:
    """fastText vectors for any string, whitened, of one length.

    Args:
        words: the public vocabulary, most frequent first.
        vectors_vd: their vectors, (V, D) float32.
        ngrams_nd: vectors of the hashed character n-grams, (N, D) float32; without them unknown words are
            hashed.
        ngram_lengths: shortest and longest n-gram.
        whitening: mean (D,) and matrix (D, D), where they were computed before.
    """

    def __init__(
        self,
        words: Sequence[str],
        vectors_vd: np.ndarray,
        ngrams_nd: np.ndarray | None = None,
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
        """D, the dimensions of a vector."""
        return int(self._vectors_vd.shape[1])

    @classmethod
    def train(cls, utterances: Iterable[Sequence[str]], *, size: int, epochs: int, seed: int = 0) -> WordVectors:
        """Train fastText (skip-gram) on public token sequences; the same seed gives the same vectors.

        Raises:
            UserError: for utterances without a word.
        """
        from gensim.models import FastText  # slow to import, and only a sweep's first minute needs it

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
            workers=1,  # threads race, and then a seed no longer fixes the result
        )
        wv = model.wv
        return cls(wv.index_to_key, wv.vectors, wv.vectors_ngrams, (wv.min_n, wv.max_n))

    @staticmethod
    def check(path: Path, size: int) -> list[str | int]:
        """Check the head of a file that `read` will be given, before anything else is done.

        Returns:
            What tells this file from another one at the same place.

        Raises:
            UserError: as `read`, for what the head shows.
        """
        _check_name(path)
        with path.open("rb") as file:
            head = file.read(200)
        try:
            # fastText's .bin: magic number, version, dimensions, each of 4 bytes; its .vec: "WORDS DIMENSIONS".
            found = struct.unpack("<iii", head[:12]) if path.suffix == ".bin" else head.split(b"\n")[0].split()
            if path.suffix == ".bin" and found[0] != _MAGIC:
                raise ValueError("no magic number of fastText's at its start")
            dimensions = int(found[2] if path.suffix == ".bin" else found[1])
        except (struct.error, ValueError, IndexError) as error:
            raise UserError(f"model.embeddings.path = {path} cannot be read as fastText vectors ({error})") from None
        _check_size(path, dimensions, size)
        seen = path.stat()
        return [str(path), seen.st_size, seen.st_mtime_ns]

    @classmethod
    def read(cls, path: Path, size: int) -> WordVectors:
        """Read fastText's `.vec` (text, no n-grams) or `.bin` (with n-grams).

        Raises:
            UserError: for a file that is missing, is neither, cannot be read, or is not of `size` dimensions.
        """
        from gensim.models import KeyedVectors
        from gensim.models.fasttext import load_facebook_vectors

        _check_name(path)
        try:
            if path.suffix == ".bin":
                wv = load_facebook_vectors(str(path))
                vectors = cls(wv.index_to_key, wv.vectors, wv.vectors_ngrams, (wv.min_n, wv.max_n))
            else:
                wv = KeyedVectors.load_word2vec_format(str(path))
                vectors = cls(wv.index_to_key, wv.vectors)
        except Exception as error:  # gensim raises whatever its parser stumbles over
            raise UserError(f"model.embeddings.path = {path} cannot be read as fastText vectors ({error})") from error
        _check_size(path, vectors.size, size)
        return vectors

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """Return vectors of any words, (W, D) float32, of length sqrt(D): entries of about unit size.

        Whitened, because in a small corpus' fastText nearly all variance lies in a few directions, and an
        unseen word's n-gram average is far shorter than a frequent word's vector: to a network all words look
        alike. After five epochs of CLC on ATIS with SNIPS' vectors, SER was 24 % without whitening and 5 %
        with it.
        """
        raw_wd = np.empty((len(words), self.size), np.float32)
        for row, word in enumerate(words):
            raw_wd[row] = self._raw(word)
        white_wd = (_unit(raw_wd) - self._mean_d) @ self._whiten_dd
        return _unit(white_wd) * np.float32(np.sqrt(self.size))

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
        np.savez(folder / "whitening.npz", mean=self._mean_d, matrix=self._whiten_dd)
        if self._ngrams_nd is not None:
            np.save(folder / "ngrams.npy", self._ngrams_nd)
        about = {"words": list(self._row), "ngram_lengths": list(self._ngram_lengths)}
        (folder / "words.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WordVectors:
        """Read what `save` wrote; the tables stay on disk until a word asks for them."""
        about = json.loads((folder / "words.json").read_text(encoding="utf-8"))
        ngrams = folder / "ngrams.npy"
        whitening = np.load(folder / "whitening.npz")
        return cls(
            about["words"],
            np.load(folder / "vectors.npy", mmap_mode="r"),
            np.load(ngrams, mmap_mode="r") if ngrams.exists() else None,
            tuple(about["ngram_lengths"]),
            (whitening["mean"], whitening["matrix"]),
        )


def _check_name(path: Path) -> None:
    if path.suffix not in (".vec", ".bin"):
        raise UserError(f"model.embeddings.path = {path} is no .vec or .bin file; allowed: one of the two")
    if not path.is_file():
        raise UserError(f"model.embeddings.path = {path} is not there; allowed: a fastText .vec or .bin file")


def _check_size(path: Path, found: int, size: int) -> None:
    if found != size:
        raise UserError(
            f"model.embeddings.path = {path} has vectors of {found} dimensions and "
            f"model.embedding_size = {size}; allowed: model.embedding_size = {found}, or another file"
        )


def _hashed(word: str, size: int) -> np.ndarray:
    """Return a direction drawn from the word's hash, (D,): the same with every version of NumPy."""
    digest = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(2 * size)
    return np.frombuffer(digest, "<u2").astype(np.float32) - np.float32(32767.5)


def _unit(vectors_wd: np.ndarray) -> np.ndarray:
    length_w1: np.ndarray = np.linalg.norm(vectors_wd, axis=1, keepdims=True)
    return np.asarray(vectors_wd / np.maximum(length_w1, 1e-12))


def _whitening(vectors_vd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean, (D,), and the symmetric matrix, (D, D), that evens out the variance of all directions."""
    unit_vd = _unit(np.asarray(vectors_vd, np.float64))
    mean_d = unit_vd.mean(0)
    variances_d, directions_dd = np.linalg.eigh((unit_vd - mean_d).T @ (unit_vd - mean_d) / len(unit_vd))
    deviations_d = np.sqrt(np.maximum(variances_d, 0))
    gains_d = 1 / (deviations_d + max(_WHITENING_FLOOR * deviations_d.mean(), 1e-6))
    # symmetric, so that it does not depend on the signs that eigh happens to choose
    return mean_d.astype(np.float32), ((directions_dd * gains_d) @ directions_dd.T).astype(np.float32)
