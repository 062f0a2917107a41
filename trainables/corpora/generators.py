"""The generated corpora: domains like the paper's private ones, from grammars of our own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice

from edp.spec import UserError
from trainables.corpora import communication, health, video
from trainables.corpora.grammar import Grammar, stream_grammar
from trainables.corpora.types import Utterance

_GRAMMARS: dict[str, Grammar] = {
    grammar.name: grammar for grammar in (communication.GRAMMAR, health.GRAMMAR, video.GRAMMAR)
}
GENERATED: tuple[str, ...] = tuple(_GRAMMARS)
MOST_GENERATED = 10_000_000
"""Utterances of one corpus: two minutes, and 4 GB of memory."""


def stream(name: str, seed: int) -> Iterator[Utterance]:
    """Distinct utterances of the generated corpus `name`, one after the other, without end.

    The same for the same seed on every machine. About 200 bytes of memory an utterance hold what was already
    said.

    Raises:
        UserError: for an unknown name; once the grammar has nothing new to say, beyond a million.
    """
    return stream_grammar(_grammar(name), seed)


def generate(name: str, count: int, seed: int) -> list[Utterance]:
    """The first `count` utterances of `stream`: a larger `count` only adds to the end.

    Raises:
        UserError: as `stream`.
    """
    return list(islice(stream(name, seed), count))


def grammar_digest(name: str) -> str:
    """Changes with every change to the grammar's words.

    Raises:
        UserError: for an unknown name.
    """
    return hashlib.sha256(repr(_grammar(name)).encode()).hexdigest()


def _grammar(name: str) -> Grammar:
    if name not in _GRAMMARS:
        raise UserError(f"corpus {name} is not a generated one; allowed: {', '.join(GENERATED)}")
    return _GRAMMARS[name]
