"""The types that every corpus is read into, and the checks that each utterance must pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from trainables.corpora.files import problem

NO_INTENT = ""
"""The intent of utterances in a corpus that has only slots."""

UNKNOWN = " unknown"
"""The intent, and the slot type, of utterances of valid and test whose own one their schema lacks; no name is this."""
UNKNOWN_TAGS = (f"B-{UNKNOWN}", f"I-{UNKNOWN}")


class Utterance(NamedTuple):
    """One labelled utterance: as many `tags` as `tokens`, strict BIO, all `O` in a corpus that has only intents.

    `user` is the name of the user who said it, "" if the corpus does not tell. No file, log or message may hold the
    name; an encoded corpus holds numbers instead.
    """

    tokens: tuple[str, ...]
    tags: tuple[str, ...]
    intent: str
    user: str = ""


class LabelNames(NamedTuple):
    """The names of a schema, sorted; a corpus without intents, or without slots, has none of them."""

    intents: tuple[str, ...]
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Splits:
    """A corpus split into train, valid and test; no utterance (by its tokens) is in two of them."""

    train: list[Utterance]
    valid: list[Utterance]
    test: list[Utterance]
    canaries: list[Utterance] = field(default_factory=list)
    """Canaries and their siblings (`trainables.measure.attacks.canary`); the trained ones are also in train."""
    planted: int = 0
    """The number of canaries in train, which are its last utterances."""
    schema: LabelNames | None = None
    """The names that train's labels are of (`trainables.corpora.schema`); None: the labels of all utterances."""
    left_out: int = 0
    """The number of training utterances that were left out for their intent, which the schema lacks."""
    cut: int = 0
    """The number of training utterances that lost a slot, whose type the schema lacks."""

    @property
    def utterances(self) -> list[Utterance]:
        """The utterances of all parts."""
        return [*self.train, *self.valid, *self.test]

    @property
    def train_users(self) -> Counter[str]:
        """The number of training utterances of each user; empty if users are not known."""
        return Counter(utterance.user for utterance in self.train if utterance.user)


@dataclass(frozen=True)
class CorpusSummary:
    """The counts of a corpus; `distinct` is the number of utterances without copies, which have the same tokens.

    `train_users` is the number of users in the training split, and `most_of_a_user` the largest number of utterances
    that one of them has there; both are None if users are not known.
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
    label_counts: dict[str, Any] = field(default_factory=dict)
    """A `trainables.corpora.labels.LabelCounts`."""
    near_copies: int = 0
    """Number of distinct utterances that are nearly another one of the same user."""
    contradictions: int = 0
    """Number of utterances that occur with different intents or tags."""
    contradiction: str | None = None
    """File and line of the first of them that has other labels than before."""
    unread: list[str] = field(default_factory=list)
    """Columns, or keys of JSON lines, that were not read."""
    schema_text: dict[str, Any] | None = None
    """A `trainables.corpora.splits.TextOverlap`; None for no schema, or one without samples."""
    schema_unread: list[str] = field(default_factory=list)
    """What of the schema's files was not read, with counts."""


class Record(NamedTuple):
    """An utterance with its file and line, for errors."""

    utterance: Utterance
    path: Path
    line: int
    tagged: bool = True
    """True if the file has tags."""
    unread: tuple[str, ...] = ()
    """The columns of its file, or the keys of its line, that were not read."""


SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which JSON can spell but no file can store."""


def split_blanks(line: str) -> list[str]:
    """Return the words of a line, separated by blanks and tabs only: a no-break space is part of a word."""
    return [word for word in re.split(r"[ \t]+", line) if word]


MAX_USER_NAME = 200
"""Largest number of characters of a user's name."""


def checked_user(user: object, path: Path, line: int) -> str:
    """Return the user of an utterance, a string or a whole number, as a string; errors do not quote it.

    Raises:
        UserError: for a user of another type, or a name that is empty, too long or not printable.
    """
    name = str(user) if isinstance(user, int) and not isinstance(user, bool) else user
    if not isinstance(name, str):
        raise problem(path, line, "user must be a string or a whole number")
    name = name.strip()
    if not name:
        raise problem(path, line, "the user is empty; needed: a user in every utterance, or in none")
    if len(name) > MAX_USER_NAME:
        raise problem(path, line, f"the user has {len(name)} characters; allowed: at most {MAX_USER_NAME}")
    if not name.isprintable():
        raise problem(path, line, "the user has characters that do not print; allowed: letters, digits and the like")
    return name


def checked(
    tokens: list[str],
    tags: list[str] | None,
    intent: str | None,
    path: Path,
    line: int,
    a_tag_a_line: bool = False,
    user: object = None,
    unread: tuple[str, ...] = (),
) -> Record:
    """Check one utterance, and return its record.

    Args:
        tags: the tags; None if the file has none.
        intent: the intent; None if the file has none.
        a_tag_a_line: True if each tag has a line of its own, `line` being the first.
        user: the user, a string or a whole number; None if the file does not tell.

    Raises:
        UserError: for no tokens, another number of tags than tokens, no intent, or tags that are not strict BIO.
    """
    if not tokens:
        raise problem(path, line, "empty utterance: it has no tokens")
    if any("\0" in token for token in tokens):
        raise problem(path, line, "a token has a NUL character; is the file damaged?")
    tagged = tags is not None
    tags = ["O"] * len(tokens) if tags is None else tags
    if len(tags) != len(tokens):
        raise problem(path, line, f"{len(tags)} tags for {len(tokens)} tokens; needed: one tag per token")
    if intent == "":
        raise problem(path, line, "the utterance has no intent")
    fault = bio_fault(tags)
    if fault is not None:
        position, text = fault
        raise problem(path, line + position if a_tag_a_line else line, f"tag {position + 1} is {text}")
    name = checked_user(user, path, line) if user is not None else ""
    return Record(Utterance(tuple(tokens), tuple(tags), intent or NO_INTENT, name), path, line, tagged, unread)


def all_or_none(records: list[Record]) -> list[Record]:
    """Return `records` if all of them or none have a user, and likewise an intent, and tags.

    Raises:
        UserError: for the first record that lacks what others have.
    """
    for what, has in (
        ("user", lambda record: record.utterance.user),
        ("intent", lambda record: record.utterance.intent != NO_INTENT),
        ("tags", lambda record: record.tagged),
    ):
        without = [record for record in records if not has(record)]
        if without and len(without) < len(records):
            raise problem(
                without[0].path,
                without[0].line,
                f"the utterance has no {what}, and {len(records) - len(without)} others have; needed: {what} in every "
                "utterance, or in none",
            )
    return records


def bio_fault(tags: Sequence[str]) -> tuple[int, str] | None:
    """Return the position and description of the first tag that breaks strict BIO, or None."""
    previous = "O"
    for position, tag in enumerate(tags):
        kind, dash, slot = tag.partition("-")
        if tag != "O" and (kind not in ("B", "I") or not dash or not slot):
            return position, f"{tag!r}; allowed: O, B-x, I-x with a slot type x"
        if kind == "I" and previous[2:] != slot:
            return position, f"{tag} after {previous}; allowed: {tag} after B-{slot} or {tag} only"
        previous = tag
    return None
