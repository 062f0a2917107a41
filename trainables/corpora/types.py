"""The one shape that every corpus has, whatever it was read from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

NO_INTENT = ""
"""The intent of an utterance in a corpus of slots alone."""


class Utterance(NamedTuple):
    """One labelled utterance: `tokens` and `tags` have the same length; `tags` are strict BIO, all `O` where a corpus
    has intents alone.

    `user` is who said it, "" where the corpus does not say. It is a name: no file, log or message may hold it, and an
    encoded corpus has numbers in its place.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    intent: str
    user: str = ""


@dataclass(frozen=True)
class Splits:
    """A corpus split into train, valid and test; no utterance (its tokens) stands in two of them."""

    train: list[Utterance]
    valid: list[Utterance]
    test: list[Utterance]
    canaries: list[Utterance] = field(default_factory=list)
    """Canaries and their siblings (`trainables.attacks.canary`); the trained ones stand in train too."""
    planted: int = 0
    """How many of the last utterances of train are canaries."""

    @property
    def train_users(self) -> Counter[str]:
        """Training utterances of each user; empty where users are not known."""
        return Counter(utterance.user for utterance in self.train if utterance.user)


@dataclass(frozen=True)
class CorpusSummary:
    """What a corpus holds, counted: `distinct` counts utterances by their tokens, copies once.

    `train_users` is how many users the training split has, and `most_of_a_user` how many of its utterances are one
    user's at most; None where users are not known.
    """

    name: str
    task: str
    """`joint`, `intents` or `slots` (`trainables.corpora.labels`)."""
    utterances: int
    distinct: int
    intents: int
    slot_types: int
    train: int
    valid: int
    test: int
    train_users: int | None = None
    most_of_a_user: int | None = None
