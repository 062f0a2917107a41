"""Public text from the samples of a schema: utterances with the labels that their writer gave them.

A sample is a sentence of an assistant's developers. `{city}` in it stands for any value of the slot `city`, and
`[new york](city)` for this value, which later variants of the sample replace by others. The text costs no ε, since no
user said it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainables.corpora.types import NO_INTENT, Utterance

UTTERANCES = 2_500
"""Number of utterances, if the samples allow as many."""
VARIANTS, VARIANTS_WITHOUT_SLOTS = 40, 3
"""Most variants of a sample with slots, and of one without, which differ in the words before and after it alone."""
_BEFORE, _AFTER = 0.3, 0.15
"""Share of the variants that words stand before, and after."""
_PLACE = re.compile(r"\{(?P<slot>[^{}\[\]\s]+)\}|\[(?P<value>[^\[\]{}]+)\]\((?P<of>[^()\s]+)\)")


class Part(NamedTuple):
    """Words of a sample, or the place of a slot; its words are then the value that the sample gives, if any."""

    words: tuple[str, ...]
    slot: str = ""


def parts_of(sample: str) -> list[Part]:
    """Return the parts of a sample.

    Raises:
        ValueError: for a sample without words, or a bracket or brace that belongs to no slot.
    """
    found: list[Part] = []
    end = 0
    for place in _PLACE.finditer(sample):
        found.append(Part(tuple(sample[end : place.start()].split())))
        found.append(Part(tuple((place["value"] or "").split()), place["slot"] or place["of"]))
        end = place.end()
    found.append(Part(tuple(sample[end:].split())))
    for part in found:
        if not part.slot and (stray := re.search(r"[\[\]{}]", " ".join(part.words))):
            raise ValueError(f"{sample[:80]!r}: {stray[0]} belongs to no slot; allowed: {{slot}}, or [value](slot)")
    kept = [part for part in found if part.slot or part.words]
    if not kept:
        raise ValueError("a sample has no words; allowed: at least one")
    return kept


@dataclass(frozen=True)
class Samples:
    """What text is made of: the samples of each intent, the values of each slot, words before and after."""

    samples: Mapping[str, Sequence[str]]
    values: Mapping[str, Sequence[str]]
    before: Sequence[str] = ()
    after: Sequence[str] = ()

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(map(len, self.samples.values()))

    @property
    def distinct_values(self) -> int:
        """The number of distinct values, listed or in samples."""
        parts = (parts_of(sample) for samples in self.samples.values() for sample in samples)
        return len({value for values in _all_values(self, parts).values() for value in values})


def make_text(given: Samples, *, most: int = UTTERANCES, seed: int = 0) -> list[Utterance]:
    """Return utterances with their labels, each once.

    Each round makes one variant of every sample, so that a smaller number has all samples in it as long as it can. A
    round that may not end goes through the intents in turn, so that each has its share. Values are drawn from a
    shuffled bag, so that all of a slot's are used about equally often.

    Args:
        most: the most utterances.
        seed: seed of the values, and of the words before and after.
    """
    rng = random.Random(seed)
    written = [(intent, parts_of(sample)) for intent, samples in given.samples.items() for sample in samples]
    bags = {slot: _bag(values, rng) for slot, values in _all_values(given, (parts for _, parts in written)).items()}
    found: dict[tuple[str, tuple[str, ...]], Utterance] = {}
    in_turn = _in_turn(written)
    for number in range(VARIANTS):
        for intent, parts in written if len(found) + len(written) <= most else in_turn:
            if number >= VARIANTS_WITHOUT_SLOTS and not any(part.slot for part in parts):
                continue
            one = _variant(intent, parts, bags, given, rng, first=number == 0)
            if one is not None:
                found.setdefault((intent, one.tokens), one)
            if len(found) == most:
                return list(found.values())
    return list(found.values())


def _in_turn(written: Iterable[tuple[str, list[Part]]]) -> list[tuple[str, list[Part]]]:
    """Return the samples in another order: the first of each intent, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    placed = []
    for intent, parts in written:
        placed.append((seen[intent], intent, parts))
        seen[intent] += 1
    return [(intent, parts) for _, intent, parts in sorted(placed, key=lambda one: one[0])]


def marked(utterance: Utterance) -> str:
    """Return the words of an utterance with its slots as a sample has them.

    Examples:
        >>> marked(Utterance(("to", "new", "york", "now"), ("O", "B-city", "I-city", "O"), "book"))
        'to [new york](city) now'
    """
    text, slot = "", ""
    for word, tag in zip(utterance.tokens, utterance.tags, strict=True):
        if slot and not tag.startswith("I-"):
            text, slot = f"{text}]({slot})", ""
        text += f" [{word}" if tag.startswith("B-") else f" {word}"
        slot = tag[2:]
    return (f"{text}]({slot})" if slot else text).strip()


def _all_values(given: Samples, samples: Iterable[Sequence[Part]]) -> dict[str, list[str]]:
    """Return the values of each slot: those that are listed, then those in samples; each once."""
    found = {slot: dict.fromkeys(values) for slot, values in given.values.items()}
    for parts in samples:
        for part in parts:
            if part.slot and part.words:
                found.setdefault(part.slot, {})[" ".join(part.words)] = None
    return {slot: list(values) for slot, values in found.items() if values}


def _bag(values: list[str], rng: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield the values in random order, all of them before one comes again."""
    while True:
        for value in rng.sample(values, len(values)):
            yield tuple(value.split())


def _variant(
    intent: str,
    parts: Sequence[Part],
    bags: Mapping[str, Iterator[tuple[str, ...]]],
    given: Samples,
    rng: random.Random,
    *,
    first: bool,
) -> Utterance | None:
    """Return a variant of a sample; the first one has its own values; None if a slot has no value."""
    tokens: list[str] = []
    tags: list[str] = []
    for part in parts:
        if part.slot and part.slot not in bags:
            return None
        words = part.words if not part.slot or (first and part.words) else next(bags[part.slot])
        tokens += words
        tags += [f"{'I' if i else 'B'}-{part.slot}" if part.slot else "O" for i in range(len(words))]
    if not first and given.before and rng.random() < _BEFORE:
        words = tuple(rng.choice(given.before).split())
        tokens, tags = [*words, *tokens], ["O"] * len(words) + tags
    if not first and given.after and rng.random() < _AFTER:
        words = tuple(rng.choice(given.after).split())
        tokens, tags = [*tokens, *words], tags + ["O"] * len(words)
    return Utterance(tuple(tokens), tuple(tags), intent or NO_INTENT)
