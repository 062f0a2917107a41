"""The one shape of every corpus, and the checks that each of its utterances must pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainables.corpora.files import problem

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
    """Canaries and their siblings (`trainables.measure.attacks.canary`); the trained ones stand in train too."""
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


class Record(NamedTuple):
    """An utterance and its place, so that an error can name file and line."""

    utterance: Utterance
    path: Path
    line: int
    tagged: bool = True
    """Whether the file says what its tags are."""


def split_blanks(line: str) -> list[str]:
    """Return the words of a line. Blanks and tabs separate; a no-break space, say, is part of a word."""
    return [word for word in re.split(r"[ \t]+", line) if word]


MAX_USER_NAME = 200
"""Characters of a user's name."""


def checked_user(user: object, path: Path, line: int) -> str:
    """Return the user of an utterance, a string or a whole number, as a string. Errors do not quote it.

    Raises:
        UserError: for one that is empty, too long, does not print, or is neither.
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
) -> Record:
    """Check one utterance by itself, and return its record.

    Args:
        tags, intent: None where the file has none.
        user: who said it, a string or a whole number; None where the file does not say.

    Raises:
        UserError: for no tokens, not one tag a token, no intent, or tags that are not strict BIO (with the
            line of the tag itself where each tag has its own).
    """
    if not tokens:
        raise problem(path, line, "empty utterance: it has no tokens")
    if any("\0" in token for token in tokens):
        raise problem(path, line, "a token has a NUL character; is the file damaged?")
    tagged = tags is not None
    tags = ["O"] * len(tokens) if tags is None else tags
    if len(tags) != len(tokens):
        raise problem(path, line, f"{len(tags)} tags for {len(tokens)} tokens; one tag a token is needed")
    if intent == "":
        raise problem(path, line, "the utterance has no intent")
    fault = bio_fault(tags)
    if fault is not None:
        position, text = fault
        raise problem(path, line + position if a_tag_a_line else line, f"tag {position + 1} is {text}")
    name = checked_user(user, path, line) if user is not None else ""
    return Record(Utterance(tuple(tokens), tuple(tags), intent or NO_INTENT, name), path, line, tagged)


def all_or_none(records: list[Record]) -> list[Record]:
    """Return `records` if all or none of them have a user, and likewise an intent, and tags.

    Raises:
        UserError: for the first one that lacks what others have.
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
    """Return the position and description of the first fault of a tag sequence, as strict BIO, or None."""
    previous = "O"
    for position, tag in enumerate(tags):
        kind, dash, slot = tag.partition("-")
        if tag != "O" and (kind not in ("B", "I") or not dash or not slot):
            return position, f"{tag!r}; allowed: O, B-x, I-x with a slot type x"
        if kind == "I" and previous[2:] != slot:
            return position, f"{tag} after {previous}; allowed: {tag} after B-{slot} or {tag} only"
        previous = tag
    return None
