"""The paper's split, 45:5:50 into train, valid and test, by a seeded hash: the same on every machine.

The published splits of a corpus are not used: ATIS has 295 utterances more than once, also across its published
splits, and a membership attack is meaningless if an utterance is both member and non-member. So an utterance's part
follows from a hash of its words without case, accents and Unicode form, which an encoder may read alike. Copies go to
one part, which does not depend on the encoder: one that tells more words apart loses nothing.

The hash alone decides. An exact 45 % would make the parts of some utterances depend on the number of others, and a part
chosen for its labels on all others: without one utterance, another one would enter or leave the training set, and
the ε of one utterance counts no second one. So sizes vary: of 5,000 different utterances, 2,250 ± 35 are in train.
"""

from __future__ import annotations

import hashlib
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from edp.spec import UserError
from trainables.corpora.types import Splits, Utterance

TRAIN_SHARE, VALID_SHARE = 0.45, 0.05
MIN_DISTINCT = 20  # with fewer, a part would often be empty


def split_corpus(utterances: Sequence[Utterance], seed: int) -> Splits:
    """Split about 45:5:50; copies go to the same part, whatever their case and accents.

    An utterance's part depends on its words and the seed alone. A part keeps the order of `utterances`. If valid or
    test would be empty, it gets the utterances that are next to it by the hash, but none of train.

    Raises:
        UserError: for fewer than 20 distinct utterances, or none for train.
    """
    place = places(f"split {seed}")
    place_n = [place(utterance) for utterance in utterances]
    distinct = sorted(set(place_n))
    if len(distinct) < MIN_DISTINCT:
        raise UserError(f"{len(distinct)} distinct utterances; allowed: at least {MIN_DISTINCT}, or no split 45:5:50")
    others = [place for place in distinct if place >= TRAIN_SHARE]
    if len(others) == len(distinct) or len(others) < 2:
        raise UserError("the split 45:5:50 leaves a part empty; allowed: more utterances, or another corpus.seed")
    valid_ends = min(max(TRAIN_SHARE + VALID_SHARE, others[1]), others[-1])
    train, valid, test = list[Utterance](), list[Utterance](), list[Utterance]()
    for utterance, at in zip(utterances, place_n, strict=True):
        (train if at < TRAIN_SHARE else valid if at < valid_ends else test).append(utterance)
    return Splits(train, valid, test)


def sample_corpus(utterances: Sequence[Utterance], count: int, seed: int) -> list[Utterance]:
    """Return a random sample of about `count` utterances. An utterance's words and the seed alone decide about it."""
    place, share = places(f"sample {seed}"), count / len(utterances)
    return [utterance for utterance in utterances if place(utterance) < share]


def places(key: str) -> Callable[[Utterance], float]:
    """Return a function that gives an utterance a place from 0 to 1 by its words (`folded`), uniformly over words."""
    keyed = hashlib.blake2b(key.encode(), digest_size=8)

    def place(utterance: Utterance) -> float:
        digest = keyed.copy()
        digest.update("\n".join(map(folded, utterance.tokens)).encode(errors="surrogatepass"))
        return int.from_bytes(digest.digest(), "big") / 2**64

    return place


def folded(word: str) -> str:
    """Return a word as encoders in lower case read it, MiniLM and BERT among them: without case, marks and controls.

    BERT's normalizer drops characters of Unicode's categories Mn, Cc and Cf after NFD.

    Examples:
        >>> folded("Café"), folded("cafe"), folded("STRASSE"), folded("straße")
        ('cafe', 'cafe', 'strasse', 'strasse')
    """
    if word.isascii():
        return word.lower()
    in_one_case = unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())
    letters = unicodedata.normalize("NFD", in_one_case)
    kept = "".join(letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cc", "Cf"))
    return unicodedata.normalize("NFC", kept)


SHORTEST = 3
"""Fewest words of an utterance that is alike to another one in all but one: most pairs of two words are."""
_SLOT = "\0"
"""Stands for the words of a slot; no token is this."""

Words = tuple[str, ...]


@dataclass(frozen=True)
class TextOverlap:
    """Counts of distinct utterances, which only the holder of the private corpus may see."""

    text: int
    """Utterances of the schema's text."""
    corpus: int
    """Utterances of the corpus."""
    exact: int
    """Utterances that are in both."""
    near: int
    """Others of the text that are nearly in the corpus."""
    corpus_near: int
    """Others of the corpus that are nearly in the text."""

    def words(self) -> str:
        """Return the counts in words."""
        return (
            f"its text has {self.text:,} utterances, and this corpus {self.corpus:,} distinct ones. {self.exact:,} are "
            f"in both word for word; {self.near:,} more of the text, and {self.corpus_near:,} of the corpus, nearly "
            "(the same words around the slots, or all but one word). Samples that were copied from what users said, "
            "or edited after a look at private utterances or errors, are private data: no ε covers them"
        )


def text_overlap(text: Iterable[Utterance], corpus: Iterable[Utterance]) -> TextOverlap:
    """Count the utterances of `text` that are in `corpus`, and the reverse; case and accents do not count.

    Two utterances are near if they have the same words around their slots and some words there, or if they have at
    least three words and all but one of them, in one order.
    """
    ours, theirs = _alike(text), _alike(corpus)
    same = ours.keys() & theirs.keys()
    near, corpus_near = len(_near(ours, theirs) - same), len(_near(theirs, ours) - same)
    return TextOverlap(len(ours), len(theirs), len(same), near, corpus_near)


def near_copies(utterances: Iterable[Utterance]) -> int:
    """Return the number of distinct utterances that are near to another one (`text_overlap`) of the same user.

    If a tool made them of one line, ε is about each of them, and less than the line is protected.
    """
    users: dict[str, list[Utterance]] = {}
    for one in utterances:
        users.setdefault(one.user, []).append(one)
    return sum(_near_each_other(_alike(those)) for those in users.values())


def near_words(count: int, *, users: bool) -> str:
    """Return a count of `near_copies` in words; `users` is True if users are known."""
    return (
        f"near copies: {count:,} distinct utterances are nearly another one{' of the same user' if users else ''} (the "
        "same words around the slots, or all but one word). If a tool made them of fewer lines, remove its copies: "
        "ε is for one utterance, and protects the line less"
    )


def _near_each_other(those: dict[Words, set[Words]]) -> int:
    """Return the number of utterances that have a key in common with another one."""
    keys = [set(_keys(words, patterns)) for words, patterns in those.items()]
    times = Counter(itertools.chain.from_iterable(keys))
    return sum(any(times[key] > 1 for key in own) for own in keys)


def _alike(utterances: Iterable[Utterance]) -> dict[Words, set[Words]]:
    """Return the distinct utterances by their folded words, each with the words around its slots."""
    found: dict[Words, set[Words]] = {}
    for one in utterances:
        words = tuple(map(folded, one.tokens))
        around = tuple(
            word if tag == "O" else _SLOT for word, tag in zip(words, one.tags, strict=True) if not tag.startswith("I-")
        )
        found.setdefault(words, set()).add(around)
    return found


def _near(those: dict[Words, set[Words]], others: dict[Words, set[Words]]) -> set[Words]:
    """Return those utterances that are near to one of the others, or equal to it."""
    keys = {key for words, patterns in others.items() for key in _keys(words, patterns)}
    return {words for words, patterns in those.items() if not keys.isdisjoint(_keys(words, patterns))}


def _keys(words: Words, patterns: set[Words]) -> Iterator[Words]:
    """Yield what an utterance has in common with each utterance that is near to it."""
    yield from (one for one in patterns if _SLOT in one and set(one) != {_SLOT})
    if len(words) >= SHORTEST:
        yield words
        yield from (words[:i] + words[i + 1 :] for i in range(len(words)))
