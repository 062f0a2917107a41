"""The labels of a corpus, its tags and intents in a fixed order, and the task that they define."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from edp.spec import UserError
from trainables.corpora.types import NO_INTENT, UNKNOWN, UNKNOWN_TAGS, LabelNames, Splits, Utterance

Task = Literal["joint", "intents", "slots"]
"""A corpus' task: intents and slots, intents alone (text classification), or slots alone (NER)."""
MAX_LABELS = 10_000
"""Largest number of intents, and of slot types, of a corpus."""
TASKS: dict[str, str] = {"joint": "intents and slots", "intents": "intents alone", "slots": "slots alone"}
"""The tasks in words."""
FEW = 10
"""A label in fewer utterances than this is shown to the holder of the data, since its name may say who they are."""


@dataclass(frozen=True)
class Labels:
    """The labels of a model: intents, and tags, which are `O` and then B-x, I-x of each slot type x."""

    intents: tuple[str, ...]
    tags: tuple[str, ...]

    def __post_init__(self) -> None:
        types = [tag[2:] for tag in self.tags[1::2]]
        if self.tags != _tags_of(types):
            raise ValueError(f"tags {self.tags} are not O and then B-x, I-x of each type x")

    @property
    def has_intents(self) -> bool:
        """True if there are several intents; a single one leaves nothing to learn."""
        return len(self.intents) > 1

    @property
    def has_slots(self) -> bool:
        """True if there is a tag other than `O`."""
        return len(self.tags) > 1

    @property
    def task(self) -> Task:
        """The task of a corpus with these labels.

        Raises:
            UserError: for nothing to learn, or too many labels.
        """
        for kind, count in (("intents", len(self.intents)), ("slot types", len(self.tags) // 2)):
            if count > MAX_LABELS:
                raise UserError(
                    f"corpus: it has {count:,} {kind}, as if a column of text or numbers were its labels; "
                    f"allowed: at most {MAX_LABELS:,}"
                )
        if self.has_intents:
            return "joint" if self.has_slots else "intents"
        if not self.has_slots:
            raise UserError("corpus: it has one intent and no slots; allowed: at least two intents, or a slot")
        return "slots"

    @classmethod
    def of(cls, utterances: Iterable[Utterance]) -> Labels:
        """Return the labels of utterances, with intents and slot types sorted."""
        intents: set[str] = set()
        tags: set[str] = set()
        for utterance in utterances:
            intents.add(utterance.intent)
            tags.update(utterance.tags)
        return cls(tuple(sorted(intents)), _tags_of(sorted({tag[2:] for tag in tags if tag != "O"})))

    @classmethod
    def named(cls, schema: LabelNames) -> Labels:
        """Return the labels of a schema."""
        return cls(schema.intents or (NO_INTENT,), _tags_of(schema.slots))

    def to_dict(self) -> dict[str, list[str]]:
        """Return a document for JSON."""
        return {"intents": list(self.intents), "tags": list(self.tags)}

    @classmethod
    def from_dict(cls, values: dict[str, list[str]]) -> Labels:
        """Build labels from a document of `to_dict`."""
        return cls(tuple(values["intents"]), tuple(values["tags"]))


def labels_of(splits: Splits) -> Labels:
    """Return the labels of the schema, or without one those of train, valid and test together."""
    return Labels.of(splits.utterances) if splits.schema is None else Labels.named(splits.schema)


def utterances_of_labels(utterances: Iterable[Utterance]) -> Counter[str]:
    """Return the number of utterances with each label: an intent, or a slot type."""
    # Few sequences of tags are distinct, so this is fast for a million utterances.
    alike = Counter((one.intent, one.tags) for one in utterances)
    found: Counter[str] = Counter()
    for (intent, tags), count in alike.items():
        for label in {("intent", intent), *(("slot", tag[2:]) for tag in tags if tag != "O")} - {("intent", NO_INTENT)}:
            found[" ".join(label)] += count
    return found


@dataclass(frozen=True)
class LabelCounts:
    """The training utterances of a corpus' labels, for the holder of the data only: no ε covers these counts."""

    labels: int
    """Number of intents and slot types of the model."""
    few: int
    """Number of labels in fewer than `FEW` training utterances."""
    one: int
    """Number of labels in at most one training utterance."""
    schema: bool = False
    left_out: int = 0
    """Training utterances that were left out for their intent, which the schema lacks."""
    cut: int = 0
    """Training utterances that lost a slot, whose type the schema lacks."""
    unknown_valid: int = 0
    """Validation utterances with a label that the schema lacks."""
    unknown_test: int = 0
    """Test utterances with a label that the schema lacks."""

    @classmethod
    def of(cls, splits: Splits) -> LabelCounts:
        """Count the labels of a corpus; canaries do not count."""
        names = labels_of(splits)
        all_labels = [f"intent {name}" for name in names.intents if names.has_intents]
        all_labels += [f"slot {tag[2:]}" for tag in names.tags[1::2]]
        times = utterances_of_labels(splits.train[: len(splits.train) - splits.planted])
        return cls(
            labels=len(all_labels),
            few=sum(times[label] < FEW for label in all_labels),
            one=sum(times[label] < 2 for label in all_labels),
            schema=splits.schema is not None,
            left_out=splits.left_out,
            cut=splits.cut,
            unknown_valid=_unknown(splits.valid),
            unknown_test=_unknown(splits.test),
        )

    @property
    def matter(self) -> bool:
        """True if there is no schema, or the schema lacks labels of the corpus."""
        return not self.schema or any((self.left_out, self.cut, self.unknown_valid, self.unknown_test))

    def words(self) -> str:
        """Return the counts in words."""
        if not self.schema:
            return (
                f"{self.labels}, read off this corpus and taken to be public; {self.few} stand in fewer than {FEW} "
                f"training utterances, {self.one} in at most one. No ε covers the names; corpus.schema takes them from "
                "a public file (edp-sweep data schema)"
            )
        if not self.matter:
            return f"{self.labels} of the schema, which lacks none of this corpus' labels"
        return (
            f"{self.labels} of the schema; it lacks labels of this corpus: {self.left_out:,} training utterances are "
            f"left out and {self.cut:,} lose a slot; {self.unknown_valid:,} of valid and {self.unknown_test:,} of test "
            "count as errors"
        )


def _unknown(utterances: Iterable[Utterance]) -> int:
    """Return the number of utterances of valid or test with a label that the schema lacks."""
    return sum(one.intent == UNKNOWN or any(tag in UNKNOWN_TAGS for tag in one.tags) for one in utterances)


def for_task(splits: Splits, task: Task, field: str) -> Splits:
    """Return the splits with only the labels of `task`, for the shadow model of a corpus with that task.

    Raises:
        UserError: for a corpus without the labels of `task`.
    """
    labels = labels_of(splits)
    for has, lacking, kind in ((labels.has_intents, "slots", "intents"), (labels.has_slots, "intents", "slots")):
        if not has and task != lacking:
            raise UserError(f"{field}: it has no {kind}, unlike the private corpus; allowed: a corpus with {kind}")

    def cut(utterances: list[Utterance]) -> list[Utterance]:
        if task == "slots":
            return [one._replace(intent=NO_INTENT) for one in utterances]
        return [one._replace(tags=("O",) * len(one.tags)) for one in utterances]

    if task == "joint":
        return splits
    return replace(splits, train=cut(splits.train), valid=cut(splits.valid), test=cut(splits.test))


def _tags_of(types: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of slot types."""
    return ("O", *(prefix + name for name in types for prefix in ("B-", "I-")))


def slot_spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the slots in order: type, first token, token after the last. A stray I-x begins one, as in conlleval."""
    slots: list[tuple[str, int, int]] = []
    start, kind = 0, ""
    for position, tag in enumerate((*tags, "O")):
        prefix, _, name = tag.partition("-")
        if kind and (prefix != "I" or name != kind):
            slots.append((kind, start, position))
            kind = ""
        if prefix != "O" and not kind:
            start, kind = position, name
    return slots


def words_of(name: str) -> list[str]:
    """Return the words of a label's name in lower case, such as toloc, city, name of `toloc.city_name`."""
    return re.findall(r"[^\W_]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())
