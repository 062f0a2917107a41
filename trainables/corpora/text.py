"""What every reader shares: strict reading of text, and the checks that one utterance must pass."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edp.spec import UserError
from trainables.corpora.types import NO_INTENT, Utterance


class Record(NamedTuple):
    """An utterance and where it stands, so that a complaint about it can name file and line."""

    utterance: Utterance
    path: Path
    line: int
    tagged: bool = True
    """Whether the file says what its tags are."""


def problem(path: Path, line: int | None, text: str) -> UserError:
    """The one-line complaint about a corpus file; `line` counts from 1, None is the file as a whole."""
    place = "row" if path.suffix in (".parquet", ".arrow") else "line"
    return UserError(f"{path}: {text}" if line is None else f"{path}, {place} {line}: {text}")


def read_bytes(path: Path) -> bytes:
    """The file's content, unpacked where its name ends in `.gz`.

    Raises:
        UserError: for a file that cannot be opened or unpacked.
    """
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise problem(path, None, f"cannot be unpacked: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except OSError as error:
        raise problem(path, None, f"cannot be read: {error.strerror}") from None


def read_text(path: Path) -> str:
    """The file's text, with every line ended by `\\n` whatever the file ends its lines with.

    Only CR LF and LF end a line: the other characters that Unicode counts as line ends occur inside real
    tokens.

    Raises:
        UserError: for a file that cannot be opened, is empty or blank, or is not UTF-8 (with the line of the
            first bad byte).
    """
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise problem(path, line, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    if not text.strip():
        raise problem(path, None, "the file is empty")
    return text.replace("\r\n", "\n")


def read_lines(path: Path) -> list[str]:
    """The file's lines without their ends; blank lines at the end of the file are dropped.

    Raises:
        UserError: as `read_text`.
    """
    lines = read_text(path).split("\n")
    while not lines[-1].strip():
        lines.pop()
    return lines


def split_blanks(line: str) -> list[str]:
    """The words of a line. Blanks and tabs separate; a no-break space, say, is part of a word."""
    return [word for word in re.split(r"[ \t]+", line) if word]


MOST_OF_A_NAME = 200
"""Characters of a user's name."""


def checked_user(user: object, path: Path, line: int) -> str:
    """The user of an utterance, a string or a whole number, as a string. What is wrong is said without the name.

    Raises:
        UserError: for one that is empty, too long, does not print, or is neither.
    """
    name = str(user) if isinstance(user, int) and not isinstance(user, bool) else user
    if not isinstance(name, str):
        raise problem(path, line, "user must be a string or a whole number")
    name = name.strip()
    if not name:
        raise problem(path, line, "the user is empty; needed: a user in every utterance, or in none")
    if len(name) > MOST_OF_A_NAME:
        raise problem(path, line, f"the user has {len(name)} characters; allowed: at most {MOST_OF_A_NAME}")
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
    """The record of one utterance, once it has passed every check that an utterance can be put to alone.

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
    """`records`, of which each has a user or none has, and likewise an intent, and tags.

    Raises:
        UserError: naming the first one that has none where others have.
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
    """Where and what the first fault of a tag sequence is, as strict BIO, or None."""
    previous = "O"
    for position, tag in enumerate(tags):
        kind, dash, slot = tag.partition("-")
        if tag != "O" and (kind not in ("B", "I") or not dash or not slot):
            return position, f"{tag!r}; allowed: O, B-x, I-x with a slot type x"
        if kind == "I" and previous[2:] != slot:
            return position, f"{tag} after {previous}; allowed: {tag} after B-{slot} or {tag} only"
        previous = tag
    return None
