"""An encoder is public, so a private corpus must not be in it: by name, by digest, or by its utterances.

What an encoder was trained on stands in its folder: `pretraining.json` names the corpora, `utterances.npy` holds a hash
of each utterance, so that the corpora themselves are not needed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edp.spec import UserError
from trainables.corpora import Splits, Utterance, corpus_digest
from trainables.spec import CorpusSpec, ModelSpec

ABOUT, HASHES = "pretraining.json", "utterances.npy"
MOST = 0.01
"""Largest share of a private corpus' distinct utterances that may stand in public ones: some things all people say."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Overlap:
    """How many of a corpus' distinct utterances stand in others. Counts alone: it may be shown."""

    shared: int
    distinct: int

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.shared / self.distinct if self.distinct else 0.0


def normal_form(tokens: Iterable[str]) -> str:
    """Letters and digits in a row, in lower case, so that corpora that are tokenised otherwise compare."""
    return re.sub(r"[\W_]", "", "".join(tokens).lower())


def hashes_of(utterances: Iterable[Utterance]) -> np.ndarray:
    """The distinct utterances in their normal form, each as the first 64 bits of its SHA-256: sorted, uint64.

    They have no salt, so that two parties get the same: who guesses an utterance can tell whether it is there. They
    are for public corpora.
    """
    texts = {normal_form(utterance.tokens) for utterance in utterances} - {""}
    hashes = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
    return np.unique(np.array(hashes, np.uint64))


def overlap(private: Iterable[Utterance], public: np.ndarray) -> Overlap:
    """How many of `private` stand in `public`, as `hashes_of` gives it."""
    own = hashes_of(private)
    return Overlap(int(np.isin(own, public, assume_unique=True).sum()), len(own))


def pretrained_on(folder: Path) -> dict[str, Any] | None:
    """What `pretraining.json` in an encoder's folder says; None where there is none.

    Raises:
        UserError: for a file that cannot be read.
    """
    path = folder / ABOUT
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        corpora_of(found)
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path}: cannot be read; allowed: the file that edp-sweep pretrain wrote") from None
    return found


def corpora_of(about: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and digest of every corpus that an encoder has seen, those before its last pretraining too."""
    return [(corpus["name"], corpus["digest"]) for corpus in (*about["corpora"], *about["earlier_corpora"])]


def check_corpus(model: ModelSpec, corpus: CorpusSpec) -> None:
    """Refuses a private corpus that the encoder in `model.pretrained` was trained on.

    Raises:
        UserError: naming the corpus.
    """
    folder = _folder(model)
    about = pretrained_on(folder) if folder is not None else None
    if about is None or folder is None:
        return
    digest = corpus_digest(corpus)
    for name, known in corpora_of(about):
        if name == corpus.name or known == digest:
            raise UserError(
                f"model.pretrained = {folder}: it was trained on {name} without privacy, so corpus = {corpus.name} "
                "cannot be private; allowed: an encoder that has not seen it"
            )


def check_utterances(model: ModelSpec, corpus: CorpusSpec, splits: Splits) -> None:
    """Refuses a private corpus of which more than 1 % stand in what the encoder was trained on; warns of fewer.

    Raises:
        UserError: with the counts.
    """
    folder = _folder(model)
    if folder is None or pretrained_on(folder) is None:
        return
    try:
        public = np.load(folder / HASHES)
    except (OSError, ValueError):
        raise UserError(
            f"model.pretrained = {folder}: {HASHES} is not there or cannot be read, so nobody knows whether it has "
            f"seen corpus = {corpus.name}; allowed: the folder as edp-sweep pretrain wrote it"
        ) from None
    found = overlap([*splits.train, *splits.valid, *splits.test], public)
    line = (
        f"{found.shared:,} of the {found.distinct:,} distinct utterances of corpus = {corpus.name} stand in what it saw"
    )
    if found.share > MOST:
        raise UserError(f"model.pretrained = {folder}: {line}; allowed: at most {MOST:.0%}")
    if found.shared:
        _log.warning("model.pretrained = %s: %s", folder, line)


def seen_by(folder: Path | None) -> tuple[list[dict[str, Any]], Sequence[np.ndarray]]:
    """The corpora, and the hashes of their utterances, that an encoder's folder says it has seen."""
    about = pretrained_on(folder) if folder is not None else None
    if about is None or folder is None:
        return [], []
    return [*about["corpora"], *about["earlier_corpora"]], [np.load(folder / HASHES)]


def _folder(model: ModelSpec) -> Path | None:
    """The folder that `model.pretrained` names, None where it is another name or none."""
    name = getattr(model, "pretrained", None)
    folder = Path(name).expanduser() if isinstance(name, str) else None
    return folder if folder is not None and folder.is_dir() else None
