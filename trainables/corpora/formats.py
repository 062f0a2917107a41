"""The formats of a corpus (docs/corpora.md#your-own): how each is recognised and read, and which files belong to it.

Either all utterances of a corpus have a user, or none has; likewise the intent in `jsonl`, `conll` and tables, and the
tags in `jsonl` and tables: a corpus without intents has only slots, one without tags only intents. Blanks at the end of
a line, CR LF, and blank lines at the end of a file are allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from edp.spec import UserError
from trainables.config import ColumnsSpec, Quoting
from trainables.config.plugins import plugins
from trainables.corpora.files import GZIPPED, opening, problem, read_bytes, refuse_json, refuse_known
from trainables.corpora.readers import THREE_FILES, by_plugin, conll, jsonl, made_of_schema, nlu_eval, three_file
from trainables.corpora.tables import arrow_table, csv_table
from trainables.corpora.types import Record, Utterance, all_or_none


class Format(NamedTuple):
    """A format: the reader of a file (of a folder, for `three_file`), the ends of its files' names, its settings."""

    read: Callable[..., Iterator[Record]]
    names: tuple[str, ...]
    settings: tuple[str, ...] = ()


FORMATS = {
    "three_file": Format(three_file, THREE_FILES),
    "nlu_eval": Format(nlu_eval, (".csv",), ("quoting",)),
    "jsonl": Format(jsonl, (".jsonl", ".ndjson", *GZIPPED)),
    "conll": Format(conll, (".conll", ".bio", ".iob"), ("columns",)),
    "csv": Format(csv_table, (".csv", ".tsv"), ("columns", "quoting")),
    "parquet": Format(arrow_table, (".parquet",), ("columns",)),
    "datasets": Format(arrow_table, (".arrow",), ("columns",)),
    "schema": Format(made_of_schema, (".yaml", ".yml")),
}
_STATE = "state.json"
_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Apache Hudi", "_spark_metadata": "Spark's Structured Streaming"}
"""Tables whose log decides which of their files and rows are current: a folder in them, and the tool's name."""
_PARTITION = re.compile(r"\w+=.+")
_COUNT = re.compile(r"\d+(?:[-.]\d+)?")


def read_corpus(
    path: Path, format: str, columns: ColumnsSpec | None = None, quoting: Quoting = "auto"
) -> list[Utterance]:
    """Return all utterances under `path`, with published splits pooled, in the order of the files' names.

    Raises:
        UserError: for a path without a corpus, and for every fault in it, with file and line.
    """
    return [record.utterance for record in read_records(path, format, columns, quoting)]


def read_records(
    path: Path, format: str, columns: ColumnsSpec | None = None, quoting: Quoting = "auto"
) -> list[Record]:
    """Return the utterances of `read_corpus` with their files and lines."""
    if not path.exists():
        raise problem(path, None, "there is no such file or folder")
    name = detect_format(path) if format == "auto" else format
    if name not in FORMATS and name not in plugins("readers"):
        raise UserError(f"corpus.format = {format}; allowed: auto, {', '.join(FORMATS)}")
    known = FORMATS.get(name, Format(partial(by_plugin, name), ()))
    given: dict[str, Any] = {"columns": columns or ColumnsSpec(), "quoting": quoting}
    set_by_user = {"corpus.columns": columns is not None, f"corpus.quoting = {quoting}": quoting != "auto"}
    for (said, is_set), setting in zip(set_by_user.items(), given, strict=True):
        if is_set and setting not in known.settings:
            those = ", ".join(other for other, one in FORMATS.items() if setting in one.settings)
            raise UserError(f"{said}: format {name} has none; allowed with {those}")
    files = corpus_files(path, name)
    records = []
    for unit in dict.fromkeys(file.parent for file in files) if name == "three_file" else files:
        found = list(known.read(unit, **{setting: given[setting] for setting in known.settings}))
        if columns is None or columns.text is None:
            _refuse_counts(found)
        records += found
    return all_or_none(records)


def _refuse_counts(records: list[Record]) -> None:
    """Raise if the words of a file are an index, or a document's name in each line: the column before the words."""
    texts = [one.utterance.tokens for one in records]
    long = [text for text in texts if len(text) > 2]
    named = len(long) > 1 and all(len(set(text)) == 1 for text in texts)
    if records and (named or all(_COUNT.fullmatch(word) for text in texts for word in text)):
        what = "one word again and again" if named else "numbers"
        how = "corpus.columns.text, the name of another column, and of CoNLL its number (data check: --column text=2)"
        raise problem(records[0].path, records[0].line, f"all utterances of the file are {what}; allowed: {how}")


def detect_format(path: Path) -> str:
    """Return the format of a file by its suffix, or of a folder by its files.

    The schema of a corpus may lie beside its files, so a folder is read as one only if the user says so.

    Raises:
        UserError: for no known format, or several.
    """
    found = [name for name in FORMATS if _candidates(path, name)]
    if "csv" in found and "nlu_eval" in found:
        heads = [_head(file).partition(b"\n")[0] for file in _candidates(path, "csv")]
        found.remove("csv" if all(b"scenario" in one and b"answer_annotation" in one for one in heads) else "nlu_eval")
    if len(found) == 1:
        return found[0]
    how = "set corpus.format (data check: --format)"
    if found:
        raise problem(path, None, f"holds corpora of several formats ({', '.join(found)}); {how}")
    for file in [path] if path.is_file() else islice(_shown(path), 100):
        head = _head(file)
        refuse_known(file, head)
        refuse_json(file, head.decode(errors="replace"))
    known = "; ".join(f"{name}: {', '.join(one.names)}" for name, one in FORMATS.items())
    raise problem(path, None, f"no corpus of a known format is there; {how}, or name files so: {known}")


def corpus_files(path: Path, format: str) -> list[Path]:
    """Return the files of a corpus of this format, sorted; a single file may have any suffix.

    Raises:
        UserError: for no file, the same file twice, a folder that lacks one of the three files, or a table that is more
            than its files.
    """
    if format == "parquet":
        for folder in (path.absolute(), *path.absolute().parents):
            _refuse_log(folder)
    if format not in FORMATS and path.is_dir():  # of a plugin
        return list(_shown(path))
    if (path.is_file() and format != "three_file") or format == "schema":
        return [path]
    files = _candidates(path, format)
    if not files:
        raise problem(path, None, f"no {format} corpus is there: expected {', '.join(FORMATS[format].names)}")
    seen: dict[Path, Path] = {}
    for file in files:
        same = file.with_suffix("") if file.suffix == ".gz" and file.with_suffix("") in files else None
        if same or (same := seen.setdefault(file.resolve(), file)) != file:
            raise problem(file, None, f"is the same as {same}; allowed: one of the two")
    for folder in sorted({file.parent for file in files}) if format == "three_file" else ():
        if missing := [name for name in THREE_FILES if not (folder / name).is_file()]:
            what = f"{' and '.join(missing)} missing; three_file needs {', '.join(THREE_FILES)}"
            raise problem(folder, None, what)
    return files


def _candidates(path: Path, format: str) -> list[Path]:
    """Return the files at or under `path` that a corpus of this format may consist of."""
    names = FORMATS[format].names
    with opening(path):
        if format == "three_file":
            folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())] if path.is_dir() else []
            return [file for folder in folders for name in names if (file := folder / name).is_file()]
        if path.is_file():
            return [path] if path.name.endswith(names) else []
        if format == "datasets":
            return _arrow_files(path)
        files = [file for file in _shown(path) if file.name.endswith(names)] if format != "schema" else []
        if format == "parquet":
            for folder in sorted({parent for file in files for parent in file.parents if parent.is_relative_to(path)}):
                _refuse_log(folder)
                if folder != path and _PARTITION.fullmatch(folder.name):
                    what = f"{folder.name} is a column, by the name of a folder, and is not read"
                    raise problem(path, None, f"{what}; allowed: a table with all columns in its files")
        return files


def _shown(path: Path) -> Iterator[Path]:
    """Yield the files in a folder that are none of an editor's (`.`) or of a table's tools (`_`), sorted."""
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
            yield file


def _arrow_files(path: Path) -> list[Path]:
    """Return the files of a saved data set or of its splits, without those of its cache beside them."""
    files = []
    for state in [path / _STATE, *sorted(path.glob(f"*/{_STATE}"))]:
        if not state.is_file():
            continue
        try:
            content = json.loads(read_bytes(state))
            files += [state.parent / Path(one["filename"]).name for one in content["_data_files"]]
            selects = content.get("_indices_data_files")
        except (ValueError, KeyError, TypeError):
            raise problem(state, None, "is not a data set's state; allowed: a folder that save_to_disk wrote") from None
        if selects:
            raise problem(state, None, "selects rows of its files; allowed: a data set after flatten_indices()")
    return files


def _refuse_log(folder: Path) -> None:
    """Raise if a folder is a table of a tool whose log or metadata says what is current."""
    name = next((name for entry, name in _LOGS.items() if (folder / entry).is_dir()), None)
    if name is None and any(folder.glob("metadata/*.metadata.json")):
        name = "Apache Iceberg"
    if name is not None:
        what = "its files may hold deleted rows, and others twice; allowed: its current rows, written to Parquet by it"
        raise problem(folder, None, f"is a table of {name}: {what}")


def _head(file: Path) -> bytes:
    """Return the first bytes of a file."""
    with opening(file), file.open("rb") as opened:
        return opened.read(1 << 16)
