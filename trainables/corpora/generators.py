"""The generated corpora: domains like the paper's private ones, each drawn from a grammar in `data/NAME.yaml`.

A template consists of words, `{slot}`s, whose words are tagged, and `<phrase>`s, whose words are not. A slot has
patterns of words and `<list>`s; a phrase has patterns of words, `{slot}`s and `<list>`s. Alternatives are in order of
frequency: the k-th has a weight of about 1/(k + 2), so every list has a long tail. `data/shared.yaml` holds the slots,
phrases and lists that all grammars share.

A list is written out, or given by `heads`, `tails` and `between` (every head with every tail), or by `count`, `step`
and `digits` (the numbers below `count`, shuffled).

Only integers and Philox's raw bits are used, whose stream NumPy guarantees: the same seed gives the same utterances on
every machine and with every version of Python.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, groupby, islice, product
from typing import Any, TypeVar

import numpy as np

from edp.spec import UserError
from trainables.corpora.types import Utterance

GENERATED = ("communication", "health", "video")
MAX_GENERATED = 10_000_000
"""Largest number of utterances of one corpus: they take two minutes and 4 GB of memory."""

T = TypeVar("T")
Piece = tuple[tuple[str, ...], tuple[str, ...]]  # tokens, tags
Leaf = list[Piece]  # pieces, repeated in proportion to their weights
Node = list[tuple[Leaf, ...]]  # alternatives, repeated in proportion to their weights

_UNIT = 1 << 20
_SPELLING = (1 << 32) // 25  # one utterance in 25 has a misspelt word
_GIVE_UP = 100_000  # draws in a row that repeat earlier utterances


@dataclass(frozen=True, eq=False)
class Grammar:
    """A domain; intents, their templates, and all patterns are in order of frequency."""

    name: str
    intents: dict[str, tuple[str, ...]]
    slots: dict[str, tuple[str, ...]]
    phrases: dict[str, tuple[str, ...]]
    lists: dict[str, tuple[str, ...]]


def stream(name: str, seed: int) -> Iterator[Utterance]:
    """Yield distinct utterances of the generated corpus `name`.

    The same seed gives the same utterances on every machine. Memory grows by about 200 bytes per utterance, to
    recognise repetitions.

    Raises:
        UserError: for an unknown name, or when the grammar has no more utterances, beyond a million.
    """
    return stream_grammar(_grammar(name), seed)


def generate(name: str, count: int, seed: int) -> list[Utterance]:
    """Return the first `count` utterances of `stream`; a larger `count` only adds to the end.

    Raises:
        UserError: as `stream`.
    """
    return list(islice(stream(name, seed), count))


def grammar_digest(name: str) -> str:
    """Return a digest that changes with every change to the grammar.

    Raises:
        UserError: for an unknown name.
    """
    return hashlib.sha256(repr(_grammar(name)).encode()).hexdigest()


def label_names(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the intents and the slot types of the generated corpus `name`.

    Raises:
        UserError: for an unknown name.
    """
    grammar = _grammar(name)
    return tuple(grammar.intents), tuple(grammar.slots)


@functools.cache
def shared_words(name: str) -> tuple[str, ...]:
    """Return a list that all grammars share, such as `first` (first names)."""
    return _expanded(_read("shared")["lists"][name])


@functools.cache
def _grammar(name: str) -> Grammar:
    """Return a grammar by its name, together with what all grammars share."""
    if name not in GENERATED:
        raise UserError(f"corpus {name} is not a generated one; allowed: {', '.join(GENERATED)}")
    shared, own = _read("shared"), _read(name)

    def merged(part: str) -> dict[str, tuple[str, ...]]:
        return {key: _expanded(entries) for key, entries in ({**shared.get(part, {}), **own.get(part, {})}).items()}

    return Grammar(name, *(merged(part) for part in ("intents", "slots", "phrases", "lists")))


@functools.cache
def _read(name: str) -> Any:
    import yaml  # slow to import, and most commands generate nothing

    text = files(__package__).joinpath("data", f"{name}.yaml").read_bytes()
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _expanded(entries: Any) -> tuple[str, ...]:
    """Return the entries of a list, which is written in one of three forms."""
    if isinstance(entries, list):
        return tuple(entries)
    if "count" in entries:
        # As `count` and `step` have no common divisor, every number occurs once.
        count, step = entries["count"], entries["step"]
        return tuple(f"{(number * step + step // 3) % count:0{entries['digits']}d}" for number in range(count))
    # Tails are the outer loop, so that neighbours, whose weights are similar, differ in their heads.
    return tuple(head + entries.get("between", "") + tail for tail in entries["tails"] for head in entries["heads"])


def stream_grammar(grammar: Grammar, seed: int) -> Iterator[Utterance]:
    """Yield utterances with distinct tokens.

    Raises:
        UserError: when the grammar has no more utterances.
    """
    templates = _compiled(grammar)
    draw = _draws(f"{grammar.name} {seed}")
    seen: set[tuple[str, ...]] = set()
    tag_sequences: dict[tuple[str, ...], tuple[str, ...]] = {}
    rejected = 0
    while rejected < _GIVE_UP:
        intent, nodes = templates[draw() * len(templates) >> 32]
        tokens: list[str] = []
        tags: list[str] = []
        for node in nodes:
            for leaf in node[draw() * len(node) >> 32]:
                words, word_tags = leaf[draw() * len(leaf) >> 32]
                tokens += words
                tags += word_tags
        if draw() < _SPELLING:
            _misspell(tokens, draw)
        key = tuple(tokens)
        if key in seen:
            rejected += 1
            continue
        rejected = 0
        seen.add(key)
        sequence = tuple(tags)
        yield Utterance(key, tag_sequences.setdefault(sequence, sequence), intent)
    raise UserError(f"corpus {grammar.name} has no more than about {len(seen)} distinct utterances; ask for fewer")


def _draws(key: str) -> Callable[[], int]:
    """Return a function that gives the next 32 random bits of the stream named `key`."""
    bits = np.random.Philox(key=int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "little"))

    def blocks() -> Iterator[list[int]]:
        while True:
            yield bits.random_raw(8192).astype("<u8").view("<u4").tolist()

    return chain.from_iterable(blocks()).__next__


def _misspell(tokens: list[str], draw: Callable[[], int]) -> None:
    """Swap, drop or double a letter of one random word, if that word has at least four letters."""
    position = draw() * len(tokens) >> 32
    word = tokens[position]
    if len(word) < 4:
        return
    at = 1 + (draw() * (len(word) - 2) >> 32)
    kind = draw() >> 30
    if kind <= 1:
        word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    elif kind == 2:
        word = word[:at] + word[at + 1 :]
    else:
        word = word[:at] + word[at] + word[at:]
    tokens[position] = word


def weight(rank: int) -> int:
    """Return Zipf's weight of the alternative at `rank`, as an integer."""
    return _UNIT // (rank + 2)


def _repeat(items: list[tuple[T, int]], size: int) -> list[T]:
    """Repeat each item in proportion to its weight, at least once, for about `size` items in all."""
    total = sum(share for _, share in items)
    return [item for item, share in items for _ in range(max(1, share * size // total))]


@functools.cache
def _compiled(grammar: Grammar) -> list[tuple[str, list[Node]]]:
    """Return the templates with their intents, repeated by weight, so that a uniform draw of an index is weighted."""
    leaves: dict[tuple[str, str, bool], Leaf] = {}

    def leaf(part: str, slot: str, first: bool) -> Leaf:
        """Return the pieces of a word or a <list>, tagged as the first or a later part of `slot`."""
        key = (part, slot, first)
        if key not in leaves:
            entries = grammar.lists[part[1:-1]] if part.startswith("<") else (part,)
            pieces = [(_tagged(entry, slot, first), weight(rank)) for rank, entry in enumerate(entries)]
            leaves[key] = _repeat(pieces, 4 * len(entries)) if len(entries) > 1 else [pieces[0][0]]
        return leaves[key]

    def alternatives(part: str) -> list[tuple[tuple[Leaf, ...], int]]:
        """Return the alternatives of a template's part, with weights."""
        if part.startswith("{"):
            slot = part[1:-1]
            patterns = [_parts(pattern) for pattern in grammar.slots[slot]]
            return [
                (tuple(leaf(piece, slot, at == 0) for at, piece in enumerate(pattern)), weight(rank))
                for rank, pattern in enumerate(patterns)
            ]
        if part.startswith("<") and part[1:-1] in grammar.phrases:
            found = []
            for rank, pattern in enumerate(grammar.phrases[part[1:-1]]):
                for choice in product(*(alternatives(piece) for piece in _parts(pattern))):
                    share = weight(rank)
                    for _, inner in choice:
                        share = share * inner // _UNIT
                    found.append((tuple(chain.from_iterable(parts for parts, _ in choice)), share))
            return found
        return [((leaf(part, "", True),), _UNIT)]

    templates = [
        (
            (intent, [_repeat(alternatives(part), 256) for part in _parts(template)]),
            weight(rank) * weight(at) // _UNIT,
        )
        for rank, (intent, texts) in enumerate(grammar.intents.items())
        for at, template in enumerate(texts)
    ]
    return _repeat(templates, 1 << 14)


def _parts(pattern: str) -> list[str]:
    """Return the pattern's slots, phrases, lists, and runs of words."""
    runs = groupby(pattern.split(), key=lambda part: part[0] in "{<")
    return [part for marked, run in runs for part in (run if marked else [" ".join(run)])]


def _tagged(words: str, slot: str, first: bool) -> Piece:
    """Return words as tokens, with the BIO tags of `slot`, or O if it is empty."""
    tokens = tuple(words.split())
    if not slot:
        return tokens, ("O",) * len(tokens)
    head = "B" if first else "I"
    return tokens, tuple(f"{head if at == 0 else 'I'}-{slot}" for at in range(len(tokens)))
