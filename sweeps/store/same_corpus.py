"""Recognise a corpus under another name, as other files, as a sample or in another split: by its utterances.

Two corpora count as one if they have one name and place, or equal digests, or if more than 1 % of the distinct
utterances of either are in the other one too. Utterances are read from a corpus' files or, if these are gone, from its
encoding in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edp.spec import UserError
from trainables.config import CorpusSpec
from trainables.corpora import corpus_digest, is_generated, load_corpus
from trainables.corpora.overlap import hashes_of, is_shared
from trainables.corpora.types import Utterance

_WHOLE = {"schema": None, "seed": 0, "utterances": None, "split": "paper", "budget": None}
"""Settings of a corpus without schema, sample and split."""


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus that something was trained on."""

    spec: CorpusSpec
    digest: str | None = None
    """Its digest at that time; None if it was not kept."""


class CorpusComparison:
    """Comparisons of corpora. Each corpus is read at most once.

    Args:
        cache: the storage folder's cache, which holds encoded corpora.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._digests: dict[CorpusSpec, str | None] = {}
        self._hashes: dict[CorpusSpec, np.ndarray | None] = {}

    def same(self, one: KnownCorpus, other: KnownCorpus) -> bool | None:
        """Return True if both hold the same people's utterances; None if this cannot be found out."""
        if (one.spec.name, one.spec.path) == (other.spec.name, other.spec.path):
            return True
        if one.digest is not None and one.digest == other.digest:
            return True
        mine, theirs = self._digest(one.spec), self._digest(other.spec)
        if mine is not None and mine == theirs:
            return True
        if is_generated(one.spec) or is_generated(other.spec):
            return False  # generated utterances are of no person, and different generated corpora share some
        hashes, others = self.hashes(one.spec), self.hashes(other.spec)
        return None if hashes is None or others is None else is_shared(hashes, others)

    def hashes(self, spec: CorpusSpec) -> np.ndarray | None:
        """Return the hashes of a corpus' distinct utterances (`hashes_of`); None if they are gone."""
        whole = spec.model_copy(update=_WHOLE)
        if whole not in self._hashes:
            try:
                found: list[Utterance] = load_corpus(whole).utterances
            except UserError:
                found = list(self._encoded(spec.name))
            self._hashes[whole] = hashes_of(found) if found else None
        return self._hashes[whole]

    def _digest(self, spec: CorpusSpec) -> str | None:
        """Return the digest of the whole corpus; None if its files are gone."""
        whole = spec.model_copy(update=_WHOLE)
        if whole not in self._digests:
            try:
                self._digests[whole] = corpus_digest(whole)
            except UserError:
                self._digests[whole] = None
        return self._digests[whole]

    def _encoded(self, name: str) -> Iterator[Utterance]:
        """Yield the utterances of all encoded corpora of this name, also canaries, which are utterances of no person.

        A folder's name tells only the corpus' name. Corpora of one name therefore count as one here.
        """
        for folder in sorted(self._cache.glob(f"{name}-*")):
            if re.fullmatch(r"(with-canaries-)?[0-9a-f]{12}", folder.name.removeprefix(f"{name}-")):
                from trainables.features.encoded_corpus import SPLITS, EncodedCorpus  # PyTorch takes seconds to import

                try:
                    corpus = EncodedCorpus.open(folder)
                    for split in SPLITS:
                        yield from corpus.utterances(split, np.arange(corpus.size(split)))
                except UserError:
                    continue
