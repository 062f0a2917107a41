"""An interaction model of Alexa: `en-US.json`."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files
from pathlib import Path

from trainables.corpora.imports.found import STRAY, Content, Found, Part, checked_as, slot_name, with_words

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
