"""Check that public data holds nothing of a private corpus: an encoder, and corpora that are read without privacy.

They are searched for the private corpus by name, by digest, and by its utterances. The folder of an encoder lists its
training data: `pretraining.json` names the corpora, and `utterances.npy` holds a hash of each utterance, so that the
corpora themselves are not needed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from edp.spec import UserError
from trainables.config import CorpusSpec, ModelSpec
from trainables.corpora import Splits, Utterance, corpus_digest, is_generated, load_corpus

ABOUT, HASHES = "pretraining.json", "utterances.npy"
MAX_SHARE = 0.01
"""Largest share of a private corpus' distinct utterances that may be in public data. Some sentences are common."""

_log = logging.getLogger(__name__)


_ACCENTS = re.compile("[\u0300-\u036f]")
"""Marks of Latin, Greek and Cyrillic letters. Marks of other scripts are vowels, which tell words apart."""


def normal_form(tokens: Iterable[str]) -> str:
    """Return the letters and digits of an utterance without accents, in one case and one Unicode form.

    So utterances that differ only in tokens, typing or accents compare equal: an encoder in lower case reads them
    alike. A text of emoji alone is kept, and a text of ASCII punctuation alone becomes empty.
    """
    text = "".join(tokens)
    if text.isascii():
        return re.sub(r"[\W_]", "", text.lower())
    text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(char for char in text if char.isalnum() or unicodedata.category(char).startswith("M"))
    return kept if any(map(str.isalnum, kept)) else text


def hashes_of(utterances: Iterable[Utterance]) -> np.ndarray:
    """Return the hashes of distinct utterances in normal form, sorted: the first 64 bits of SHA-256, uint64.

    They have no salt, so that all parties get the same hashes. Anybody can test whether a guessed utterance is among
    them, so they are for public corpora only.
    """
    return np.unique(_hashed({normal_form(utterance.tokens) for utterance in utterances} - {""}))


def _hashed(texts: Iterable[str]) -> np.ndarray:
    """Return the first 64 bits of the SHA-256 of each text, uint64."""
    return np.array([int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts], np.uint64)


def overlap(private: Iterable[Utterance], public: np.ndarray) -> tuple[int, int]:
    """Return the number of distinct utterances of `private` whose hashes are in `public` (`hashes_of`), and of all."""
    texts = {normal_form(utterance.tokens) for utterance in private} - {""}
    return int(np.isin(_hashed(texts), public).sum()), len(texts)


def is_shared(one: np.ndarray, other: np.ndarray) -> bool:
    """Return True if more than 1 % of the distinct utterances of either corpus (`hashes_of`) are in the other one."""
    return len(np.intersect1d(one, other)) > MAX_SHARE * min(len(one), len(other))


def corpora_seen(folder: Path | None) -> list[dict[str, Any]]:
    """Return the corpora (`name`, `digest`) that an encoder has seen in all of its pretrainings, as its folder lists.

    Raises:
        UserError: for a list that cannot be read.
    """
    path = folder / ABOUT if folder is not None else None
    if path is None or not path.is_file():
        return []
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = [*about["corpora"], *about["earlier_corpora"]]
        _ = [(one["name"], one["digest"]) for one in found]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path}: cannot be read; allowed: the file that examples/pretrain_encoder.py wrote") from None
    return found


def check_corpus(model: ModelSpec, corpus: CorpusSpec) -> None:
    """Raise if the encoder in `model.pretrained` was trained on the private corpus."""
    folder = _folder(model)
    if not (seen := corpora_seen(folder)):
        return
    digest = corpus_digest(corpus.model_copy(update={"schema": None}))  # whose utterances are the same
    for one in seen:
        if one["name"] == corpus.name or one["digest"] == digest:
            raise UserError(
                f"model.pretrained = {folder}: it was trained on {one['name']} without privacy, so corpus = "
                f"{corpus.name} cannot be private; allowed: an encoder that has not seen it"
            )


def check_utterances(model: ModelSpec, corpus: CorpusSpec, splits: Splits) -> None:
    """Raise if more than 1 % of the private corpus is in the encoder's training data; warn if less is."""
    folder = _folder(model)
    if folder is not None and corpora_seen(folder):
        public = hashes_in(folder, f"whether it has seen corpus = {corpus.name}")
        _refuse(f"model.pretrained = {folder}", corpus, splits, public)


def check_public(corpus: CorpusSpec, splits: Splits, public: dict[str, CorpusSpec]) -> None:
    """Raise if more than 1 % of the private corpus is in a corpus that is treated as public; warn if less is.

    A generated corpus holds no person's words, so for it this only warns: the results of attacks would be misleading.

    Args:
        splits: the utterances of `corpus`.
        public: the public corpora, by the field that names each.
    """
    seen: dict[str, str] = {}
    for field, other in public.items():
        digest = corpus_digest(other, field)
        if seen.setdefault(digest, field) == field:
            found = load_corpus(other, field)
            _refuse(f"{field} = {other.name}", corpus, splits, hashes_of(found.utterances))


def _refuse(what: str, corpus: CorpusSpec, splits: Splits, public: np.ndarray) -> None:
    """Raise if too many utterances of `corpus` are in public data, warn if some are; `what` names the data."""
    shared, distinct = overlap(splits.utterances, public)
    share = shared / max(distinct, 1)
    line = (
        f"{what}: {shared:,} of the {distinct:,} distinct utterances of corpus = {corpus.name} ({share:.2%}) are in it "
        "too"
    )
    if share > MAX_SHARE and not is_generated(corpus):
        raise UserError(f"{line}; allowed: at most {MAX_SHARE:.0%}")
    if shared:
        _log.warning("%s", line)


def hashes_in(folder: Path, unknown: str) -> np.ndarray:
    """Read the hashes in an encoder's folder; `unknown` says in the error what cannot be told without them."""
    try:
        found: np.ndarray = np.load(folder / HASHES)
        if found.ndim != 1 or found.dtype != np.uint64 or len(found) == 0:
            raise ValueError
    except (OSError, ValueError, EOFError):
        raise UserError(
            f"model.pretrained = {folder}: {HASHES} is missing or cannot be read, so it is unknown {unknown}; "
            "allowed: the folder as examples/pretrain_encoder.py wrote it"
        ) from None
    return found


def _folder(model: ModelSpec) -> Path | None:
    """Return the folder that `model.pretrained` names, or None if it names no folder."""
    name = getattr(model, "pretrained", None)
    folder = Path(name).expanduser() if isinstance(name, str) else None
    return folder if folder is not None and folder.is_dir() else None
