"""The paper's split, 45:5:50 into train, valid and test, by a seeded hash: the same on every machine.

The published splits of a corpus are not used: ATIS has 295 utterances more than once, also across its published
splits, and a membership attack is meaningless if an utterance is both member and non-member. So utterances are grouped
by their tokens, and a group goes to one split as a whole. Case, accents and Unicode form do not count, since an encoder
may read them alike. The groups do not depend on the encoder: one that tells more words apart loses nothing by them.

A label (an intent or a tag) that train lacks cannot be learned. So, after the random split, one group of every such
label is exchanged for a group that train can spare. ATIS needs it: seven of its intents occur once. An exchange is a
bias, since a label's only utterance is then always a member. There are at most as many exchanges as labels, and none in
a corpus whose labels are frequent, or with a schema: then no label decides which utterances are in train.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from edp.spec import UserError
from trainables.corpora.types import Splits, Utterance

TRAIN_PERCENT, VALID_PERCENT = 45, 5
MIN_DISTINCT = 20  # with fewer, valid would be empty


class LabelWithoutTrainError(UserError):
    """A label that train cannot have; `utterance` is an utterance with that label."""

    def __init__(self, label: str, utterance: Utterance) -> None:
        super().__init__(
            f"{label} would be in valid or test only and could not be learned: the corpus has too many "
            "labels for its number of utterances; add utterances or drop the label"
        )
        self.utterance = utterance


def split_corpus(utterances: Sequence[Utterance], seed: int, *, every_label: bool = True) -> Splits:
    """Split 45:5:50, counted in distinct utterances; copies go to the same part, whatever their case and accents.

    The result depends only on the utterances and the seed, not on the order of the utterances.

    Args:
        every_label: True if every intent and every tag must occur in train.

    Raises:
        UserError: for fewer than 20 distinct utterances, or (`LabelWithoutTrainError`) more labels than train can hold.
    """
    groups = _by_tokens(utterances, f"split {seed}")
    distinct = np.cumsum([len({utterance.tokens for utterance in group}) for group in groups])
    total = int(distinct[-1]) if groups else 0
    if len(groups) < MIN_DISTINCT:
        raise UserError(f"{len(groups)} distinct utterances; allowed: at least {MIN_DISTINCT}, or no split 45:5:50")
    n_train, n_both = (
        int(np.searchsorted(distinct, count)) + 1
        for count in accumulate((percent * total + 50) // 100 for percent in (TRAIN_PERCENT, VALID_PERCENT))
    )
    # A single group, such as many spellings of the same words, may be larger than a part.
    n_train = min(n_train, len(groups) - 2)
    n_both = min(max(n_both, n_train + 1), len(groups) - 1)
    if every_label:
        _give_train_every_label(groups, n_train)
    parts = groups[:n_train], groups[n_train:n_both], groups[n_both:]
    train, valid, test = ([utterance for group in part for utterance in group] for part in parts)
    return Splits(train, valid, test)


def sample_corpus(utterances: Sequence[Utterance], count: int, seed: int) -> list[Utterance]:
    """Return a random sample of at most `count` utterances, by a seeded hash."""
    ordered = [utterance for group in _by_tokens(utterances, f"sample {seed}") for utterance in group]
    return ordered[:count]


def _by_tokens(utterances: Sequence[Utterance], key: str) -> list[list[Utterance]]:
    """Group utterances that an encoder may read alike (`folded`), in the order of a keyed hash."""
    groups: dict[tuple[str, ...], list[Utterance]] = {}
    first: dict[tuple[str, ...], tuple[str, ...]] = {}  # the least of a group, which does not depend on the order
    for utterance in utterances:
        words = tuple(map(folded, utterance.tokens))
        groups.setdefault(words, []).append(utterance)
        first[words] = min(first.get(words, utterance.tokens), utterance.tokens)
    keyed = hashlib.blake2b(key.encode(), digest_size=16)

    def position(words: tuple[str, ...]) -> bytes:
        digest = keyed.copy()
        digest.update("\n".join(first[words]).encode())
        return digest.digest()

    return [sorted(groups[words]) for words in sorted(groups, key=position)]


def folded(word: str) -> str:
    """Return a word as encoders in lower case read it, MiniLM and BERT among them: without case, marks and controls.

    BERT's normalizer drops characters of Unicode's categories Mn, Cc and Cf after NFD.

    Examples:
        >>> folded("Café"), folded("cafe"), folded("STRASSE"), folded("straße")
        ('cafe', 'cafe', 'strasse', 'strasse')
    """
    if word.isascii():
        return word.lower()
    letters = unicodedata.normalize("NFD", _in_one_case(word))
    kept = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cc", "Cf"))
    return unicodedata.normalize("NFC", kept)


def _in_one_case(word: str) -> str:
    """Return a word in one case and one Unicode form: all that was folded before accents were."""
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())


def has_accented_twins(utterances: Iterable[Utterance]) -> bool:
    """Return True if some utterances differ in accents alone: their splits are not those of version 0.1.0."""
    distinct = {utterance.tokens for utterance in utterances}
    with_accents, without = ({tuple(map(fold, tokens)) for tokens in distinct} for fold in (_in_one_case, folded))
    return len(without) < len(with_accents)


def _labels(*groups: Iterable[Utterance]) -> set[str]:
    """Return the intents and tags of all groups as strings; no tag begins with `intent`."""
    # Few sequences of tags are distinct, so this is fast for a million utterances.
    labelled = {(utterance.tags, utterance.intent) for group in groups for utterance in group}
    return {label for tags, intent in labelled for label in (f"intent {intent}", *tags)}


def _give_train_every_label(groups: list[list[Utterance]], n_train: int) -> None:
    """Exchange groups in place until the first `n_train` have every label."""
    if _labels(*groups[:n_train]) == _labels(*groups):
        return
    in_train = Counter(label for group in groups[:n_train] for label in _labels(group))
    for outside in range(n_train, len(groups)):
        incoming = _labels(groups[outside])
        lacking = {label for label in incoming if not in_train[label]}
        if not lacking:
            continue
        for inside in reversed(range(n_train)):
            if all(in_train[label] > 1 or label in incoming for label in _labels(groups[inside])):
                break
        else:
            raise LabelWithoutTrainError(min(lacking), groups[outside][0])
        in_train.subtract(_labels(groups[inside]))
        in_train.update(incoming)
        groups[inside], groups[outside] = groups[outside], groups[inside]
