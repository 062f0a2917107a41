"""An agent of Dialogflow ES: the files of its export."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from edp.spec import UserError
from trainables.corpora.imports.found import Content, Found, Part, checked_as, joined, slot_name


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
