"""The labels of a corpus: its tags and intents, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainables.corpora.types import Utterance


@dataclass(frozen=True)
class Labels:
    """The public schema: intents, and tags with `O` first and then B-x, I-x of each slot type x in turn."""

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        types = [tag[2:] for tag in self.tags[1::2]]
        if self.tags != _tags_of(types):
            raise ValueError(f"tags {self.tags} are not O and then B-x, I-x of each type x")

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> Labels:
        """Every intent and slot type of the utterances, sorted."""
        intents: set[str] = set()
        tags: set[str] = set()
        for utterance in utterances:
            intents.add(utterance.intent)
            tags.update(utterance.tags)
        return cls(tuple(sorted(intents)), _tags_of(sorted({tag[2:] for tag in tags if tag != "O"})))

    def to_dict(self) -> dict[str, list[str]]:
        """For JSON."""
        return {"intents": list(self.intents), "tags": list(self.tags)}

    @classmethod
    def from_dict(cls, values: dict[str, list[str]]) -> Labels:
        """Read what `to_dict` gave."""
        return cls(tuple(values["intents"]), tuple(values["tags"]))


def _tags_of(types: Iterable[str]) -> tuple[str, ...]:
    return ("O", *(prefix + name for name in types for prefix in ("B-", "I-")))
