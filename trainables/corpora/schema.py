"""The schema of a corpus: a public file with the names of its intents and slot types (docs/corpora.md#schemas).

A model's labels are its schema's, so that no label is read off the private corpus. What the schema lacks is `UNKNOWN`
in valid and test, which no model predicts: an error. In train a slot's tags become `O`, and an utterance with such an
intent is left out. If a schema has no intents, all intents of the corpus are ignored, and likewise slots.
"""

from __future__ import annotations

import functools
import hashlib
import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from edp.spec import Frozen, UserError
from trainables.config import CorpusSpec
from trainables.corpora.generators import GENERATED, label_names
from trainables.corpora.labels import Labels
from trainables.corpora.schema_imports import MAX_BYTES, content_of
from trainables.corpora.schema_text import UTTERANCES, Samples, make_text, parts_of
from trainables.corpora.types import NO_INTENT, SURROGATE, UNKNOWN, LabelNames, Splits, Utterance

_FOLDER = files(__package__).joinpath("data", "schemas")
SCHEMAS = tuple(sorted({*(one.name.removesuffix(".yaml") for one in _FOLDER.iterdir()), *GENERATED}))
"""The names of the schemas that come along: those of public corpora and of generated ones."""
_MAX_NAME = 200


def _with_words(given: tuple[str, ...]) -> tuple[str, ...]:
    for number, one in enumerate(given, start=1):
        if not one.split() or SURROGATE.search(one) or "\0" in one:
            raise ValueError(f"text {number} has no words, or characters that no file can store; allowed: words")
    return given


Words = Annotated[tuple[str, ...], AfterValidator(_with_words), Field(description="a list of texts")]


class Intent(Frozen):
    """An intent, and sentences that its developers wrote."""

    description: Annotated[str | None, Field(description="text for readers, without effect")] = None
    samples: Words = ()


class Slot(Frozen):
    """A slot type, and values that its developers listed, or the name of a catalogue."""

    description: Annotated[str | None, Field(description="text for readers, without effect")] = None
    values: Words | str = ()


class Schema(Frozen):
    """The content of a schema file: intents and slot types by name, or lists of their names; and samples of text."""

    intents: dict[str, Intent] = Field(default_factory=dict)
    slots: dict[str, Slot] = Field(default_factory=dict)
    catalogues: dict[str, Words] = Field(default_factory=dict)
    samples: Words = ()
    before: Words = ()
    after: Words = ()

    @field_validator("intents", "slots", mode="before")
    @classmethod
    def _a_list_has_names_alone(cls, given: Any) -> Any:
        if isinstance(given, list):
            if any(not isinstance(name, str) for name in given):
                raise ValueError("allowed: a list of names, or a mapping of names to {description: …}")
            if twice := next((name for name in given if given.count(name) > 1), None):
                raise ValueError(f"{twice} is given twice; allowed: once")
            return {name: {} for name in given}
        if isinstance(given, dict):
            return {name: {} if value in ("", "null", "~") else value for name, value in given.items()}
        return {} if given in ("", "null", "~") else given

    @field_validator("intents", "slots")
    @classmethod
    def _names_can_be_in_a_corpus(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        for name in given:
            if not name or len(name) > _MAX_NAME or name != name.strip() or SURROGATE.search(name):
                raise ValueError(f"{name[:80]!r} is no name of a label; allowed: 1 to {_MAX_NAME} characters")
            if info.field_name == "slots" and re.search(r"\s", name):
                raise ValueError(f"{name!r} is no slot type; allowed: a name without blanks")
        if info.field_name == "intents" and len(given) == 1:
            raise ValueError("there is one intent, which leaves nothing to learn; allowed: several, or none")
        return given

    @model_validator(mode="after")
    def _samples_have_values(self) -> Schema:
        for slot_name, slot in self.slots.items():
            if isinstance(slot.values, str) and slot.values not in self.catalogues:
                known = ", ".join(self.catalogues) or "a list of values"
                raise ValueError(f"slots.{slot_name}.values: there is no catalogue {slot.values}; allowed: {known}")
        if self.samples and self.intents:
            raise ValueError("samples: which intent they have is unknown; allowed: samples below each intent")
        for place, samples in self._samples_by_place.items():
            for sample in samples:
                try:
                    parts = parts_of(sample)
                except ValueError as error:
                    raise ValueError(f"{place}: {error}") from None
                if lacking := next((part.slot for part in parts if part.slot and part.slot not in self.slots), None):
                    raise ValueError(f"{place}: {sample[:80]!r}: there is no slot {lacking}; allowed: one of slots")
        for empty in self._slots_without_value:
            raise ValueError(
                f"slots.{empty}: a sample has it, and it has no value; allowed: values, or a catalogue's name"
            )
        return self

    @property
    def _samples_by_place(self) -> dict[str, Words]:
        """The samples, by where the file has them."""
        return {"samples": self.samples} | {
            f"intents.{name}.samples": one.samples for name, one in self.intents.items()
        }

    @property
    def _slots_without_value(self) -> list[str]:
        """The slots of samples that no value can stand for."""
        places = [part for samples in self._samples_by_place.values() for one in samples for part in parts_of(one)]
        given = {part.slot for part in places if part.words} | {slot for slot, values in self._values.items() if values}
        return sorted({part.slot for part in places if part.slot} - given)

    @property
    def _values(self) -> dict[str, Words]:
        """The values of each slot that the file lists."""
        named = self.catalogues
        return {
            k: named[slot.values] if isinstance(slot.values, str) else slot.values for k, slot in self.slots.items()
        }

    @property
    def names(self) -> LabelNames:
        """The names, sorted, so that their order in the file has no effect."""
        return LabelNames(tuple(sorted(self.intents)), tuple(sorted(self.slots)))

    @property
    def text(self) -> Samples:
        """The samples, values and words that public text is made of (`trainables.corpora.schema_text`)."""
        samples = {name: one.samples for name, one in self.intents.items()} or {NO_INTENT: self.samples}
        return Samples(samples, self._values, self.before, self.after)


def schema_of(spec: CorpusSpec, field: str = "corpus") -> LabelNames | None:
    """Return the names of `spec.schema`, or None if there is no schema.

    Raises:
        UserError: for a file that is missing, or no schema.
    """
    return None if spec.schema is None else find_schema(spec.schema, f"{field}.schema = {spec.schema}").schema.names


class ReadSchema(NamedTuple):
    """A schema, and what of its files was not read, with counts."""

    schema: Schema
    unread: tuple[str, ...] = ()


def schema_path(name: str) -> Path:
    """Return the path of the schema of a name that comes along, or of a file, folder or zip, which need not exist."""
    return Path(str(_FOLDER / f"{name}.yaml")) if name in SCHEMAS else Path(name).expanduser()


def find_schema(name: str, wanted: str) -> ReadSchema:
    """Return the schema of a name that comes along, or of a file, folder or zip."""
    path = schema_path(name)
    if name in GENERATED and not path.is_file():
        intents, slots = label_names(name)
        return ReadSchema(Schema(intents=dict.fromkeys(intents, Intent()), slots=dict.fromkeys(slots, Slot())))
    try:
        there = path.is_file() or path.is_dir()
    except OSError as error:  # such as a folder without permission, or a name that is too long
        raise UserError(
            f"{wanted}: it leads nowhere ({error.strerror}); allowed: a path that can be followed"
        ) from None
    if not there:
        raise UserError(f"{wanted}: there is no such file; allowed: a YAML file, {', '.join(SCHEMAS)}")
    return read_schema(path, wanted)


def public_text(spec: CorpusSpec, field: str = "corpus") -> list[Utterance]:
    """Return the public text of `spec.schema`; empty without a schema, or without samples in it."""
    if spec.schema is None:
        return []
    return make_text(find_schema(spec.schema, f"{field}.schema = {spec.schema}").schema.text)


def read_schema(path: Path, wanted: str) -> ReadSchema:
    """Read a schema of one of the formats of `trainables.corpora.schema_imports`."""
    digest = None
    if path.is_file() and path.stat().st_size <= MAX_BYTES:
        with suppress(OSError), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _read(path, wanted, digest) if digest is not None else _read.__wrapped__(path, wanted)


@functools.lru_cache(maxsize=16)
def _read(path: Path, wanted: str, digest: str | None = None) -> ReadSchema:
    """Return `read_schema`. With `digest` as an argument, the cache misses if the file changes."""
    content, unread = content_of(path)
    try:
        found = Schema.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        # Below a label's key, only numbers are the file's own: others name a member of a union.
        parts = [str(part) for depth, part in enumerate(problem["loc"]) if depth < 3 or isinstance(part, int)]
        parts += [problem["ctx"]["field"]] if problem["type"] == "unknown_setting" else []
        place, what = " ".join(".".join(parts).split()), problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "unknown_setting":
            what = f"unknown key; allowed: {problem['ctx']['known']}"
        elif problem["type"] in ("dict_type", "model_type", "model_attributes_type"):
            what = "allowed: {description: …}" if len(problem["loc"]) > 1 else "allowed: a mapping of names, or a list"
        elif problem["type"] in ("tuple_type", "string_type"):
            what = f"allowed: a list of texts{', or the name of a catalogue' if parts[-1] == 'values' else ''}"
        raise UserError(f"{wanted}: {place + ': ' if place else ''}{what}") from None
    if not found.intents and not found.slots:
        raise UserError(f"{wanted}: it has no label; allowed: at least two intents, or a slot")
    if (beyond := found.text.count - UTTERANCES) > 0:
        unread = (*unread, f"samples beyond the {UTTERANCES:,} utterances that are made ({beyond:,})")
    return ReadSchema(found, unread)


HEADING = """\
The labels of corpus {name}, read off the corpus itself. REVIEW THIS FILE before corpus.schema names it: everybody who
gets a model gets these names, and no ε covers them. A name that stands in few utterances may tell of the people who
said them. Keep a name only if you would have chosen it without these utterances; remove the others.
A label can have a description: {{description: …}} instead of {{}}. An intent can have samples, which are sentences of
yours, and a slot type values (docs/corpora.md#schemas): models at a small ε are much better then. Copy nothing from
this corpus.
"""


def skeleton(labels: Labels, name: str) -> str:
    """Return the text of a schema file with these labels, for a person to review."""
    import yaml  # slow to import, and most commands write no schema

    sections = {
        "intents": labels.intents if labels.has_intents else (),
        "slots": tuple(tag[2:] for tag in labels.tags[1::2]),
    }
    comment = "".join(f"# {line}\n" for line in HEADING.format(name=name).splitlines())
    return comment + yaml.safe_dump(
        {kind: {one: {} for one in names} for kind, names in sections.items() if names},
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )


def bound_by(splits: Splits, schema: LabelNames, wanted: str) -> Splits:
    """Return the splits as a model with the labels of `schema` is trained and measured on them.

    Raises:
        UserError: if a split has no utterance with an intent of the schema.
    """
    intents, slots = frozenset(schema.intents or (NO_INTENT,)), frozenset(schema.slots)

    def of_task(utterances: list[Utterance]) -> list[Utterance]:
        if not schema.intents:
            utterances = [one._replace(intent=NO_INTENT) for one in utterances]
        if not slots:
            utterances = [one._replace(tags=("O",) * len(one.tags)) for one in utterances]
        return utterances

    parts = {name: of_task(getattr(splits, name)) for name in ("train", "valid", "test")}
    for name, utterances in parts.items():
        if not any(one.intent in intents for one in utterances):
            raise UserError(
                f"{wanted}: no utterance of {name} has one of its intents; allowed: the schema of this corpus"
            )
    known = [one for one in parts["train"] if one.intent in intents]
    train = [one._replace(tags=tuple(tag if tag[2:] in slots else "O" for tag in one.tags)) for one in known]

    def measured(one: Utterance) -> Utterance:
        tags = (tag if tag == "O" or tag[2:] in slots else tag[:2] + UNKNOWN for tag in one.tags)
        return one._replace(tags=tuple(tags), intent=one.intent if one.intent in intents else UNKNOWN)

    return Splits(
        train,
        [measured(one) for one in parts["valid"]],
        [measured(one) for one in parts["test"]],
        schema=schema,
        left_out=len(parts["train"]) - len(train),
        cut=sum(one.tags != other.tags for one, other in zip(known, train, strict=True)),
    )
