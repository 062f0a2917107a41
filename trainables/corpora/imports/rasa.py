"""Rasa's training data, versions 2 and 3: `nlu.yml`."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

from trainables.corpora.imports.found import Content, Found, Part, checked_as, joined, slot_name


class _Example(Part):
    text: str


class Entry(Part):
    """One of an intent, a synonym, a lookup table and a regex, with its examples."""

    intent: str | None = None
    synonym: str | None = None
    lookup: str | None = None
    regex: str | None = None
    examples: str | list[str | _Example] = ""

    def lines(self, left_out: Counter[str]) -> list[str]:
        """Return the examples, a line each."""
        if isinstance(self.examples, str):
            lines = [one.strip() for one in self.examples.splitlines() if one.strip()]
            found = [one[1:].strip() for one in lines if one.startswith("-")]
            if len(found) < len(lines):
                left_out["lines of examples that begin without a dash"] += len(lines) - len(found)
            return found
        return [one if isinstance(one, str) else one.text for one in self.examples]


def rasa_entries(path: Path, one: Content, left_out: Counter[str]) -> list[Entry]:
    """Return the entries of a file."""
    left_out["sections beside nlu"] += len(one.keys() - {"nlu", "version"})
    found: list[Entry] = checked_as(
        list[Entry], one.get("nlu", []), f"{path}: nlu", "intents, synonyms and lookups with examples"
    )
    return found


_ANNOTATION = re.compile(
    r"\[(?P<text>[^\[\]]+)\](?:\((?P<plain>[^()]+)\)|\{(?P<one>[^{}]+)\}|\[(?P<several>\{[^\[\]]*)\])"
)


class _Entity(Part):
    entity: str
    role: str | None = None
    value: object = None


def from_rasa(entries: list[Entry], left_out: Counter[str]) -> Content:
    """Return the content of Rasa's training data.

    The values of an entity are those in samples, for all of its roles, in its lookup table, and in each list of
    synonyms that has one of them.
    """
    found = Found()
    groups = [({one.synonym, *texts}, texts) for one in entries if one.synonym for texts in [one.lines(left_out)]]
    canonical: dict[str, set[str]] = defaultdict(set)
    for one in entries:
        if one.intent:
            # Rasa's classifier learns the part before the slash; its response selector learns the other.
            samples = found.samples.setdefault(one.intent.partition("/")[0].strip(), [])
            for line in one.lines(left_out):
                if (sample := _rasa_sample(line, found, canonical)) is None:
                    left_out["samples with brackets that mark no entity"] += 1
                else:
                    samples.append(sample)
        elif one.lookup:
            found.catalogues[slot_name(one.lookup)] += one.lines(left_out)
        elif not one.synonym:
            left_out["regexes" if one.regex else "entries of unknown kinds"] += 1
    for entity, texts in found.catalogues.items():
        known = {*texts, *canonical[entity]}
        texts += [text for names, others in groups if names & known for text in others]
    return found.content()


def _rasa_sample(line: str, found: Found, canonical: dict[str, set[str]]) -> str | None:
    """Return a sample of ours, and note its entities; None if a bracket marks none."""
    pieces: list[tuple[str, str]] = []
    seen: list[tuple[str, str, _Entity]] = []
    end = 0
    for match in _ANNOTATION.finditer(line):
        try:
            if match["plain"]:
                name, _, value = match["plain"].partition(":")
                about = _Entity(entity=name, value=value or None)
            else:
                about = _Entity.model_validate(json.loads(f"[{match['several'] or '{' + match['one'] + '}'}]")[0])
        except (ValueError, RecursionError):  # pydantic's errors are ValueErrors
            return None
        entity = slot_name(about.entity)
        slot = f"{entity}.{slot_name(about.role)}" if about.role else entity
        if not entity or not match["text"].strip():
            return None
        pieces += [(line[end : match.start()], ""), (match["text"], slot)]
        seen.append((entity, slot, about))
        end = match.end()
    sample = joined([*pieces, (line[end:], "")])
    if sample is not None:
        for (text, _), (entity, slot, about) in zip(pieces[1::2], seen, strict=True):
            found.slots[slot][entity] = None
            found.catalogues[entity].append(text)
            canonical[entity] |= {about.value} if isinstance(about.value, str) else set()
    return sample
