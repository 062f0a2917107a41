"""How much of a corpus an encoder can read: its vocabulary may lack the letters of a language, or its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from edp.spec import UserError
from trainables.corpora.types import Utterance
from trainables.features.word_pieces import WordPieces


@dataclass(frozen=True)
class Readable:
    """Counts of a corpus before an encoder."""

    encoder: str
    words: int
    """Words of all utterances."""
    unknown: int
    """Words that have the piece for what is unknown."""
    distinct: int
    """Distinct utterances."""
    told_apart: int
    """Distinct utterances by their pieces: the encoder reads the others alike."""

    def line(self) -> str:
        """Return the counts in words."""
        return (
            f"encoder {self.encoder}: {self.unknown / self.words:.1%} of the words are unknown to it, and it tells "
            f"{self.told_apart:,} of {self.distinct:,} distinct utterances apart"
        )

    def check(self) -> None:
        """Raise if most words are unknown, or most distinct utterances are read alike.

        Raises:
            UserError: with the counts.
        """
        if 2 * self.unknown > self.words or 2 * self.told_apart < self.distinct:
            raise UserError(f"model.pretrained: {self.line()}; allowed: an encoder of the corpus' language")


def readable(utterances: Sequence[Utterance], pieces: WordPieces) -> Readable:
    """Count the words that an encoder does not know, and the utterances that it tells apart; at least one is given."""
    times = Counter(word for one in utterances for word in one.tokens)
    found = dict(zip(times, map(tuple, pieces.pieces(list(times))), strict=True))
    unknown = sum(count for word, count in times.items() if not pieces.bare and pieces.unknown in found[word])
    distinct = {one.tokens for one in utterances}
    told_apart = {tuple(found[word] for word in tokens) for tokens in distinct}
    return Readable(pieces.source, times.total(), unknown, len(distinct), len(told_apart))
