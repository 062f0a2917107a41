"""What the files of another tool hold, on the way to a schema of ours."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
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


_BRACES = re.compile(r"\{([^{}]*)\}")


class _Slot(Part):
    name: str
    type: str = ""
    samples: tuple[str, ...] = ()


class _Intent(Part):
    name: str
    samples: tuple[str, ...] = ()
    slots: tuple[_Slot, ...] = ()


class _Name(Part):
    value: str
    synonyms: tuple[str, ...] = ()


class _Value(Part):
    name: _Name


class _Type(Part):
    name: str
    values: tuple[_Value, ...] = ()


class _Model(Part):
    intents: list[_Intent]
    types: tuple[_Type, ...] = ()


def from_alexa(path: Path, document: Content, left_out: Counter[str]) -> Content:
    """Return the content of an interaction model; a built-in type has the values of `data/alexa.yaml`."""
    language = document.get("interactionModel", document)
    if isinstance(language, dict):
        language = language.get("languageModel")
    model: _Model = checked_as(_Model, language, f"{path}: languageModel", "an interaction model of Alexa")
    found = Found()
    for kind in model.types:
        values = [text for one in kind.values for text in (one.name.value, *one.name.synonyms)]
        found.catalogues[kind.name] += with_words(values)
    types = {slot.type for intent in model.intents for slot in intent.slots}
    for name, usual in built_in_values().items():
        if name in types:
            found.catalogues[name] += usual
    for intent in model.intents:
        samples = found.samples.setdefault(intent.name.strip(), [])
        own = {slot.name: slot for slot in intent.slots}
        for slot in intent.slots:
            found.slots[slot_name(slot.name)][slot.type] = None
            left_out["samples of a slot alone"] += len(slot.samples)
        for sample in intent.samples:
            names = [name.strip() for name in _BRACES.findall(sample)]
            lacking = [own[name].type for name in names if name in own and not found.catalogues[own[name].type]]
            if any(name not in own for name in names) or STRAY.search(_BRACES.sub("", sample)):
                left_out["samples with braces or brackets that hold no slot of their intent"] += 1
            elif lacking:
                left_out[f"samples with a slot of type {lacking[0][:80]!r}, which has no values"] += 1
            else:
                samples.append(_BRACES.sub(lambda match: f" {{{slot_name(match[1])}}} ", sample))
    return found.content()


def built_in_values() -> dict[str, list[str]]:
    """Return a few values of the most usual of Alexa's own types."""
    import yaml  # slow to import, and most commands read no schema

    text = files("trainables.corpora").joinpath("data", "alexa.yaml").read_text(encoding="utf-8")
    found: dict[str, list[str]] = yaml.load(text, yaml.BaseLoader)
    return found


class _Piece(Part):
    text: str = ""
    alias: str = ""
    meta: str = ""


class _Phrase(Part):
    data: list[_Piece]
    isTemplate: bool = False


class _Named(Part):
    name: str = ""
    language: str = ""
    isRegexp: bool = False


class _Entry(Part):
    value: str
    synonyms: tuple[str, ...] = ()


MEMBER = re.compile(
    r"(?:.*/)?(?:(?P<agent>agent\.json)|(?P<kind>intents|entities)/(?P<stem>[^/]+?)"
    r"(?:_(?P<texts>usersays|entries)_(?P<language>[A-Za-z]{2,3}(?:-[A-Za-z0-9]+)?))?\.json)"
)


def from_dialogflow(path: Path, members: dict[str, bytes], left_out: Counter[str]) -> Content:
    """Return the content of an agent of Dialogflow ES, in its own language."""
    found, languages = Found(), Counter[str]()
    named: dict[tuple[str, str], _Named] = {}
    texts: list[tuple[str, str, str, Any]] = []
    main = ""
    for name, raw in sorted(members.items()):
        if not (match := MEMBER.fullmatch(name)):
            left_out["YAML files"] += 1
            continue
        where = f"{path}, {' '.join(name.split())}"
        try:
            given = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON: {str(error)[:80]}; allowed: an agent of Dialogflow ES") from None
        if match["agent"]:
            main = main or checked_as(_Named, given, where, "an agent of Dialogflow ES").language
        elif match["texts"]:
            texts.append((match["kind"], match["stem"], match["language"], (where, given)))
            languages[match["language"]] += 1
        else:
            named[match["kind"], match["stem"]] = checked_as(_Named, given, where, "a file of Dialogflow ES")
            if match["kind"] == "intents":
                found.samples.setdefault(named["intents", match["stem"]].name.strip() or match["stem"], [])
    if main not in languages:
        main = languages.most_common(1)[0][0] if languages else ""
    for kind, stem, language, (where, given) in texts:
        about = named.get((kind, stem), _Named())
        if language != main:
            left_out[f"files in the language {language}, where {main} is read"] += 1
        elif kind == "entities":
            entries: list[_Entry] = checked_as(list[_Entry], given, where, "entries of an entity")
            # An entry may be a regular expression, or made of other entities.
            plain = [] if about.isRegexp else [one for one in entries if not re.search(r"@[\w.-]+:", one.value)]
            left_out["entries of entities that are no plain text"] += len(entries) - len(plain)
            found.catalogues[about.name or stem] += [text for one in plain for text in (one.value, *one.synonyms)]
        else:
            phrases: list[_Phrase] = checked_as(list[_Phrase], given, where, "training phrases of an intent")
            samples = found.samples.setdefault(about.name.strip() or stem, [])
            for phrase in phrases:
                sample = None if phrase.isTemplate else joined(map(_slot_of, phrase.data))
                if sample is None:
                    left_out["training phrases that are templates, or have brackets"] += 1
                    continue
                samples.append(sample)
                for piece in phrase.data:
                    if slot := _slot_of(piece)[1]:
                        found.slots[slot][piece.meta.removeprefix("@")] = None
    return found.content()


def _slot_of(piece: _Piece) -> tuple[str, str]:
    """Return the text of a piece, and its slot type."""
    marked = piece.alias and piece.meta != "@sys.ignore"
    return piece.text, slot_name(piece.alias) if marked else ""


class _RasaExample(Part):
    text: str


class RasaEntry(Part):
    """One of an intent, a synonym, a lookup table and a regex, with its examples."""

    intent: str | None = None
    synonym: str | None = None
    lookup: str | None = None
    regex: str | None = None
    examples: str | list[str | _RasaExample] = ""

    def lines(self, left_out: Counter[str]) -> list[str]:
        """Return the examples, a line each."""
        if isinstance(self.examples, str):
            lines = [one.strip() for one in self.examples.splitlines() if one.strip()]
            found = [one[1:].strip() for one in lines if one.startswith("-")]
            if len(found) < len(lines):
                left_out["lines of examples that begin without a dash"] += len(lines) - len(found)
            return found
        return [one if isinstance(one, str) else one.text for one in self.examples]


def rasa_entries(path: Path, one: Content, left_out: Counter[str]) -> list[RasaEntry]:
    """Return the entries of a file."""
    left_out["sections beside nlu"] += len(one.keys() - {"nlu", "version"})
    found: list[RasaEntry] = checked_as(
        list[RasaEntry], one.get("nlu", []), f"{path}: nlu", "intents, synonyms and lookups with examples"
    )
    return found


_ENTITY = re.compile(r"\[(?P<text>[^\[\]]+)\](?:\((?P<plain>[^()]+)\)|\{(?P<one>[^{}]+)\}|\[(?P<several>\{[^\[\]]*)\])")


class _Entity(Part):
    entity: str
    role: str | None = None
    value: object = None


def from_rasa(entries: list[RasaEntry], left_out: Counter[str]) -> Content:
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
    for match in _ENTITY.finditer(line):
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
