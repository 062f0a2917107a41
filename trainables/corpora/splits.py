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
import unicodedata
from collections.abc import Callable, Sequence

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
