"""Load the corpus of a `CorpusSpec`: its splits, its counts, and its digest, which names it in caches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from edp.spec import UserError
from trainables.config import CorpusSpec
from trainables.config.keys import identity
from trainables.config.plugins import version_of
from trainables.corpora.files import opening, read_bytes, row_word
from trainables.corpora.formats import FORMATS, corpus_files, detect_format, read_corpus, read_records
from trainables.corpora.generators import GENERATED, MAX_GENERATED, generate, grammar_digest
from trainables.corpora.labels import LabelCounts, labels_of
from trainables.corpora.public import find_corpus
from trainables.corpora.schema import bound_by, find_schema, public_text, schema_of
from trainables.corpora.schema_text import VARIANTS, make_text
from trainables.corpora.splits import folded, near_copies, sample_corpus, split_corpus, text_overlap
from trainables.corpora.types import CorpusSummary, Record, Splits, Utterance

GENERATED_UTTERANCES = 10_000  # default of `CorpusSpec.utterances` for a generated corpus
_SPLIT_VERSION = "45:5:50 v3"  # part of every digest; change it if the same utterances would be split differently
_PARTS = ("train", "valid", "test")


def load_corpus(spec: CorpusSpec, field: str = "corpus") -> Splits:
    """Read or generate a corpus, split it 45:5:50 by `spec.seed`, and apply its schema (`trainables.corpora.schema`).

    Published splits are pooled, unless `spec.split` asks for them: they may have an utterance in two parts, and labels
    that train lacks. `spec.utterances` is the number of utterances to generate, or the size of a random sample of any
    other corpus.

    Args:
        field: the recipe's name of the corpus, for error messages.

    Raises:
        UserError: for every fault in the corpus, with its file and line, and for a schema that is none of this corpus.
    """
    schema = schema_of(spec, field)
    splits = _published(spec, field) if spec.split == "published" else _split(spec, field)
    return splits if schema is None else bound_by(splits, schema, f"{field}.schema = {spec.schema}")


def _split(spec: CorpusSpec, field: str) -> Splits:
    """Read or generate a corpus, and split it 45:5:50."""
    if is_generated(spec):
        utterances = generate(spec.name, _generated(spec, field), spec.seed)
    else:
        utterances = [record.utterance for record in _records(spec, field)]
        if spec.utterances is not None:
            if spec.utterances > len(utterances):
                raise UserError(
                    f"{field}.utterances = {spec.utterances}: {spec.name} has {len(utterances)}; allowed: at most "
                    "that many, or null for all"
                )
            utterances = sample_corpus(utterances, spec.utterances, spec.seed)
    try:
        return split_corpus(utterances, spec.seed)
    except UserError as error:
        raise UserError(f"{field} {spec.name}: {error}") from None


def _records(spec: CorpusSpec, field: str = "corpus") -> list[Record]:
    """Read the files of a corpus."""
    return read_records(find_corpus(spec, field), spec.format, spec.columns, spec.quoting)


def check_private(spec: CorpusSpec) -> None:
    """Raise if a private corpus is a schema: many utterances are made of one line, and ε is for one utterance."""
    if is_generated(spec) or not is_made(spec):
        return
    raise UserError(
        f"corpus.path = {spec.path}: it is a schema, and up to {VARIANTS} utterances are made of a line, but ε is for "
        "one utterance; allowed: files with the utterances themselves, such as JSON lines (docs/corpora.md#your-own). "
        "If developers wrote these lines, name the file as corpus.schema or as search.proxy (look: edp-sweep data text)"
    )


def check_corpus(spec: CorpusSpec) -> CorpusSummary:
    """Load a private corpus with all checks that training makes, and count its utterances and labels.

    Raises:
        UserError: as `load_corpus` and `check_private`, and for nothing to learn.
    """
    check_private(spec)
    splits = load_corpus(spec)
    labels = labels_of(splits)
    users = splits.train_users
    records = [] if is_generated(spec) else _records(spec)
    contradictions = _contradictions(records)
    first = next(iter(contradictions), None)
    schema, unread = find_schema(spec.schema, f"corpus.schema = {spec.schema}") if spec.schema else (None, ())
    text = make_text(schema.text) if schema is not None else []
    every = [record.utterance for record in records]
    if text and not records:  # with a schema, the splits lack utterances and slots of the corpus
        every = load_corpus(spec.model_copy(update={"schema": None})).utterances
    return CorpusSummary(
        name=spec.name,
        task=labels.task,
        utterances=len(splits.utterances),
        distinct=len({utterance.tokens for utterance in splits.utterances}),
        intents=len(labels.intents) if labels.has_intents else 0,
        slot_types=len(labels.tags) // 2,
        train=len(splits.train),
        valid=len(splits.valid),
        test=len(splits.test),
        train_users=len(users) or None,
        most_of_a_user=max(users.values(), default=None),
        label_counts=asdict(LabelCounts.of(splits)),
        contradictions=len(contradictions),
        near_copies=near_copies(every if records else ()),
        contradiction=f"{first.path}, {row_word(first.path)} {first.line}" if first else None,
        unread=_unread(records),
        schema_text=asdict(text_overlap(text, every)) if text else None,
        schema_unread=list(unread),
    )


def unread(spec: CorpusSpec) -> list[str]:
    """Return the columns of a corpus of files that are not read."""
    return _unread(_records(spec))


def _unread(records: Iterable[Record]) -> list[str]:
    return sorted({column for record in records for column in record.unread})


def _contradictions(records: list[Record]) -> list[Record]:
    """Return the first record of each utterance that contradicts an earlier one: alike, with other labels."""
    first: dict[tuple[str, ...], Utterance] = {}
    found: dict[tuple[str, ...], Record] = {}
    for record in records:
        words = tuple(map(folded, record.utterance.tokens))
        earlier = first.setdefault(words, record.utterance)
        if (earlier.intent, earlier.tags) != (record.utterance.intent, record.utterance.tags):
            found.setdefault(words, record)
    return list(found.values())


def corpus_digest(spec: CorpusSpec, field: str = "corpus") -> str:
    """Return a digest of the splits that `load_corpus(spec)` returns.

    It depends on the content of the files, the grammar or a schema's text, on the sample and on the seed, but not on
    the files' folder.

    Raises:
        UserError: for a corpus that is not found.
    """
    split = _SPLIT_VERSION if spec.split == "paper" else spec.split
    digest = hashlib.sha256(f"{split}\n{spec.seed}\n".encode())
    if others := identity(spec, {"name", "path", "format", "schema", "utterances", "seed", "split", "budget"}):
        digest.update(json.dumps(others, sort_keys=True).encode())
    if (schema := schema_of(spec, field)) is not None:
        digest.update(json.dumps(schema).encode())
        if text := public_text(spec, field):
            digest.update(json.dumps(text).encode())
    if is_generated(spec):
        digest.update(f"{grammar_digest(spec.name)}\n{_generated(spec, field)}".encode())
        return digest.hexdigest()
    path = find_corpus(spec, field)
    format = _format(spec, path)
    digest.update(f"{format}\n{spec.utterances}".encode())
    if format not in FORMATS:
        digest.update(version_of("readers", format).encode())
    if format == "schema":  # whose files hold more than makes its text
        digest.update(json.dumps(read_corpus(path, format)).encode())
        return digest.hexdigest()
    for file in corpus_files(path, format):
        if spec.split == "published":
            digest.update(f"\n{_part_of(file)}".encode())
        if format in FORMATS:
            raw = read_bytes(file)
        else:  # of a plugin, which may read what we refuse
            with opening(file):
                raw = file.read_bytes()
        digest.update(b"\n" + hashlib.sha256(raw).digest())
    return digest.hexdigest()


def _format(spec: CorpusSpec, path: Path) -> str:
    """Return the format of the files at `path`."""
    return detect_format(path) if spec.format == "auto" else spec.format


def _published(spec: CorpusSpec, field: str) -> Splits:
    """Return the published parts of a corpus: folders or files named train, valid and test."""
    parts: dict[str, list[Utterance]] = {name: [] for name in _PARTS}
    wanted = f"{field}.split = published: {spec.name}"
    if is_generated(spec):
        raise UserError(f"{wanted} is a generated corpus, which has no published split; allowed: paper")
    if spec.utterances is not None:
        raise UserError(
            f"{wanted} has {field}.utterances = {spec.utterances}; allowed: paper, or {field}.utterances = null"
        )
    for record in _records(spec, field):
        part = _part_of(record.path)
        if part is None:
            raise UserError(f"{wanted} has no published split; allowed: paper, or a corpus with {', '.join(parts)}")
        parts[part].append(record.utterance)
    if missing := [name for name, utterances in parts.items() if not utterances]:
        raise UserError(f"{wanted} lacks {' and '.join(missing)}; allowed: paper, or a corpus with {', '.join(parts)}")
    return Splits(parts["train"], parts["valid"], parts["test"])


def _part_of(file: Path) -> str | None:
    """Return the published part that a file or its folder is named after, None if there is none."""
    return next((name for name in (file.name.partition(".")[0], file.parent.name) if name in _PARTS), None)


def is_generated(spec: CorpusSpec) -> bool:
    """Return True if the corpus comes from a grammar, and so holds no person's words."""
    return spec.path is None and spec.name in GENERATED


def is_made(spec: CorpusSpec) -> bool:
    """Return True if the corpus is made, by a grammar or of a schema's samples."""
    return is_generated(spec) or _format(spec, find_corpus(spec)) == "schema"


def _generated(spec: CorpusSpec, field: str) -> int:
    """Return the number of utterances of a generated corpus."""
    count = spec.utterances or GENERATED_UTTERANCES
    if count > MAX_GENERATED:
        raise UserError(f"{field}.utterances = {count}: they are held in memory; allowed: 20 to {MAX_GENERATED:,}")
    return count
