"""How much of a schema's text is in a corpus, word for word or nearly, counted as a slow literal version does."""

from __future__ import annotations

import random
from itertools import combinations

from tests.support.toy import utterance
from trainables.corpora import Utterance, generate
from trainables.corpora.splits import TextOverlap, folded, near_copies, text_overlap


def literal(text: list[Utterance], corpus: list[Utterance]) -> TextOverlap:
    """Every pair of utterances is compared."""

    def words(one: Utterance) -> tuple[str, ...]:
        return tuple(folded(token) for token in one.tokens)

    def around(one: Utterance) -> list[str | None]:
        found: list[str | None] = []
        for token, tag in zip(one.tokens, one.tags, strict=True):
            if tag == "O":
                found.append(folded(token))
            elif tag.startswith("B-"):
                found.append(None)
        return found

    def all_but_one(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
        if min(len(a), len(b)) < 3 or abs(len(a) - len(b)) > 1:
            return False
        of_a, of_b = ({*combinations(one, len(one) - 1), one} for one in (a, b))
        return bool(of_a & of_b)

    def near(one: Utterance, other: Utterance) -> bool:
        pattern = around(one)
        same = pattern == around(other) and None in pattern and any(pattern)
        return same or all_but_one(words(one), words(other))

    ours, theirs = ({words(one) for one in some} for some in (text, corpus))
    exact = ours & theirs
    nearly, corpus_nearly = (
        len({words(one) for one in those if any(near(one, other) for other in others)} - exact)
        for those, others in ((text, corpus), (corpus, text))
    )
    return TextOverlap(len(ours), len(theirs), len(exact), nearly, corpus_nearly)


def test_what_counts_as_near() -> None:
    text = [utterance("a flight to New York", "O O O B-city I-city", "book"), utterance("stop it now", "O O O", "stop")]
    corpus = {
        "a flight to new york": ("O O O B-city I-city", (1, 0)),
        "a flight to rome": ("O O O B-place", (0, 1)),
        "a flight to rome ok": ("O O O B-place O", (0, 0)),
        "flight to new york": ("O O B-city I-city", (0, 1)),
        "please stop it now": ("O O O O", (0, 1)),
        "stop it please": ("O O O", (0, 1)),
        "stop it": ("O O", (0, 0)),
        "now it stop": ("O O O", (0, 0)),
        "STOP it now": ("O O O", (1, 0)),
        "rome": ("B-city", (0, 0)),
    }
    for words, (tags, wanted) in corpus.items():
        found = text_overlap(text, [utterance(words, tags, "book")])
        assert (found.exact, found.near) == (found.exact, found.corpus_near) == wanted, words
        assert (found.text, found.corpus) == (2, 1)
    whole = text_overlap(text, [utterance(words, tags, "book") for words, (tags, _) in corpus.items()])
    assert whole == TextOverlap(text=2, corpus=10, exact=2, near=0, corpus_near=4)
    alone = [utterance("rome", "B-city", "book")]
    assert text_overlap(alone, [utterance("bonn", "B-city", "book")]).near == 0, "no words stand around it"


def test_the_counts_are_those_of_every_pair() -> None:
    every = generate("video", 120, seed=1)
    rng = random.Random(0)
    corpus = every[:80]
    text = every[60:]
    for one in corpus[:40]:
        at = rng.randrange(len(one.tokens))
        text.append(one._replace(tokens=(*one.tokens[:at], "other", *one.tokens[at + 1 :])))
        if one.tags[at] == "O":
            text.append(
                one._replace(tokens=one.tokens[:at] + one.tokens[at + 1 :], tags=one.tags[:at] + one.tags[at + 1 :])
            )
    text = [one for one in text if one.tokens]
    found = text_overlap(text, corpus)
    assert found == literal(text, corpus)
    assert found.exact >= 20
    assert found.near >= 40


def test_near_copies_are_counted_among_the_utterances_of_one_user() -> None:
    lines = ["please book it now", "please book it", "stop the music", "weather in rome today", "weather in rome today"]
    alone = [Utterance(tuple(line.split()), ("O",) * len(line.split()), "i") for line in lines]
    assert near_copies(alone) == 2
    assert near_copies([one._replace(user=f"u{i}") for i, one in enumerate(alone)]) == 0
    assert near_copies([one._replace(user=f"u{i // 2}") for i, one in enumerate(alone)]) == 2
    slot = [Utterance(("to", city, "now"), ("O", "B-city", "O"), "i") for city in ("rome", "paris")]
    assert near_copies(slot) == 2
