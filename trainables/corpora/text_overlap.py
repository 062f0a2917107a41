"""How much of a schema's public text is in a private corpus, word for word or nearly, for the holder of the data.

Samples that were copied from users, or written after a look at what they said, are private data and void every ε. The
counts show such a schema, and they tell how much better than on a new corpus the figures of a public one may be.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainables.corpora.splits import folded
from trainables.corpora.types import Utterance

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
