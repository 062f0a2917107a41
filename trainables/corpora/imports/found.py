"""What the files of another tool hold, on the way to a schema of ours."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from edp.spec import UserError

Content = dict[str, Any]
"""What the YAML file of a schema holds."""


class Part(BaseModel):
    """A part of a file of others: keys that we do not know are not read."""

    model_config = ConfigDict(extra="ignore")


def checked_as(kind: Any, given: Any, where: str, what: str) -> Any:
    """Return `given` as `kind`, or raise `UserError` with its place in the file."""
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{where}: {place + ': ' if place else ''}{first['msg']}; allowed: {what}") from None


def slot_name(name: str) -> str:
    """Return a name that a slot type can have."""
    return re.sub(r"[\s()\[\]{}]+", "_", name.strip())


def with_words(given: Iterable[str]) -> list[str]:
    """Return the texts that have words, each once."""
    return list(dict.fromkeys(words for one in given if (words := " ".join(one.split()))))


class Found:
    """What a file holds: samples of intents, and the catalogues of slot types, of which one may have several."""

    def __init__(self) -> None:
        self.samples: dict[str, list[str]] = {}
        self.slots: dict[str, dict[str, None]] = defaultdict(dict)
        self.catalogues: dict[str, list[str]] = defaultdict(list)

    def content(self) -> Content:
        """Return what the YAML file of a schema would hold."""
        named = {name: texts for name, given in self.catalogues.items() if (texts := with_words(given))}
        slots: Content = {}
        for slot, kinds in self.slots.items():
            known = [kind for kind in kinds if kind in named]
            several = with_words(text for kind in known for text in named[kind])
            slots[slot] = {"values": known[0] if len(known) == 1 else several}
        used = {one["values"] for one in slots.values() if isinstance(one["values"], str)}
        return {
            "intents": {name: {"samples": with_words(samples)} for name, samples in self.samples.items()},
            "slots": slots,
            "catalogues": {name: texts for name, texts in named.items() if name in used},
        }


STRAY = re.compile(r"[\[\]{}]")


def joined(pieces: Iterable[tuple[str, str]]) -> str | None:
    """Return a sample of ours from texts and their slots ("" for none); None for a bracket that our samples lack."""
    sample = ""
    for text, slot in pieces:
        if STRAY.search(text):
            return None
        # Our values end at blanks: `tomorrow's` with a slot of `tomorrow` becomes two words.
        sample += f" [{text.strip()}]({slot}) " if slot and text.strip() else text
    return sample
