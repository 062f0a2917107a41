"""The one shape that every corpus has, whatever it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Utterance(NamedTuple):
    """One labelled utterance: `tokens` and `tags` have the same length; `tags` are strict BIO."""

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    intent: str


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


@dataclass(frozen=True)
class CorpusSummary:
    """What a corpus holds, counted: `distinct` counts utterances by their tokens, copies once."""

    name: str
    utterances: int
    distinct: int
    intents: int
    slot_types: int
    train: int
    valid: int
    test: int
