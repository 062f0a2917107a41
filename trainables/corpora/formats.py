"""The files of a corpus: the format of a path, and which files under it are read."""

from __future__ import annotations

import json
import re
from itertools import islice
from pathlib import Path

from trainables.corpora.files import GZIPPED, problem, read_bytes, refuse_json, refuse_known

THREE_FILES = ("seq.in", "seq.out", "label")
SUFFIXES = {
    "nlu_eval": (".csv",),
    "jsonl": (".jsonl", ".ndjson", *GZIPPED),
    "conll": (".conll", ".bio", ".iob"),
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet",),
    "datasets": (".arrow",),
    "schema": (".yaml", ".yml"),
}
FORMATS = ("three_file", *SUFFIXES)
_STATE = "state.json"
_TABLES = {"_delta_log": "Delta Lake", ".hoodie": "Apache Hudi", "_spark_metadata": "Spark's Structured Streaming"}
"""Tables whose log decides which of their files and rows are current: a folder in them, and the tool's name."""
_PARTITION = re.compile(r"\w+=.+")


def detect_format(path: Path) -> str:
    """Return the format of a file by its suffix, or of a folder by its files.

    The schema of a corpus may lie beside its files, so a folder is read as one only if the user says so.

    Raises:
        UserError: for no known format, or several.
    """
    found = [format for format in FORMATS if _candidates(path, format)]
    if "csv" in found and "nlu_eval" in found:
        found.remove("csv" if all(_is_nlu_eval(file) for file in _candidates(path, "csv")) else "nlu_eval")
    if len(found) == 1:
        return found[0]
    known = "; ".join(
        ["three_file: " + ", ".join(THREE_FILES)] + [f"{k}: *{', *'.join(v)}" for k, v in SUFFIXES.items()]
    )
    how = "set corpus.format (data check: --format)"
    if found:
        raise problem(path, None, f"holds corpora of several formats ({', '.join(found)}); {how}")
    for file in (
        [path] if path.is_file() else islice((one for one in sorted(path.rglob("*")) if _is_shown(one, path)), 100)
    ):
        head = _head(file)
        refuse_known(file, head)
        refuse_json(file, head.decode(errors="replace"))
    raise problem(path, None, f"no corpus of a known format is there; {how}, or name files so: {known}")


def corpus_files(path: Path, format: str) -> list[Path]:
    """Return the files of a corpus of this format, sorted; a single file may have any suffix.

    Raises:
        UserError: for no file, the same file twice, a folder that lacks one of the three files, or a table that is more
            than its files.
    """
    if format == "parquet":
        for folder in (path.absolute(), *path.absolute().parents):
            _refuse_table(folder)
    if format not in FORMATS and path.is_dir():  # of a plugin
        return [file for file in sorted(path.rglob("*")) if _is_shown(file, path)]
    if (path.is_file() and format != "three_file") or format == "schema":
        return [path]
    files = _candidates(path, format)
    if not files:
        names = THREE_FILES if format == "three_file" else tuple("*" + suffix for suffix in SUFFIXES[format])
        raise problem(path, None, f"no {format} corpus is there: expected {', '.join(names)}")
    seen: dict[Path, Path] = {}
    for file in files:
        same = file.with_suffix("") if file.suffix == ".gz" and file.with_suffix("") in files else None
        if same or (same := seen.setdefault(file.resolve(), file)) != file:
            raise problem(file, None, f"is the same as {same}; allowed: one of the two")
    if format == "three_file":
        for folder in sorted({file.parent for file in files}):
            missing = [name for name in THREE_FILES if not (folder / name).is_file()]
            if missing:
                what = f"{' and '.join(missing)} missing; three_file needs {', '.join(THREE_FILES)}"
                raise problem(folder, None, what)
    return files


def _is_nlu_eval(file: Path) -> bool:
    """Return True if the header of a CSV file has the columns of NLU-Evaluation-Data."""
    head = _head(file).partition(b"\n")[0]
    return b"scenario" in head and b"answer_annotation" in head


def _arrow_files(path: Path) -> list[Path]:
    """Return the files of a saved data set or of its splits, without those of its cache beside them."""
    files = []
    for state in [path / _STATE, *sorted(path.glob(f"*/{_STATE}"))]:
        if not state.is_file():
            continue
        try:
            content = json.loads(read_bytes(state))
            names = [one["filename"] for one in content["_data_files"]]
            if content.get("_indices_data_files"):
                raise problem(state, None, "selects rows of its files; allowed: a data set after flatten_indices()")
            files += [state.parent / Path(name).name for name in names]
        except (ValueError, KeyError, TypeError):
            raise problem(state, None, "is not a data set's state; allowed: a folder that save_to_disk wrote") from None
    return files


def _refuse_table(folder: Path) -> None:
    """Raise if a folder is a table of a tool whose log or metadata says what is current."""
    name = next((name for entry, name in _TABLES.items() if (folder / entry).is_dir()), None)
    if name is None and any(folder.glob("metadata/*.metadata.json")):
        name = "Apache Iceberg"
    if name is not None:
        what = "its files may hold deleted rows, and others twice; allowed: its current rows, written to Parquet by it"
        raise problem(folder, None, f"is a table of {name}: {what}")


def _belongs(file: Path, root: Path, format: str) -> bool:
    """Return True if a file is part of the corpus."""
    return file.name.endswith(SUFFIXES[format]) and _is_shown(file, root)


def _is_shown(file: Path, root: Path) -> bool:
    """Return True for a file that is none of an editor's (`.`) or of a table's tools (`_`)."""
    return not any(part.startswith((".", "_")) for part in file.relative_to(root).parts) and file.is_file()


def _head(file: Path) -> bytes:
    """Return the first bytes of a file."""
    try:
        with file.open("rb") as opened:
            return opened.read(1 << 16)
    except OSError as error:
        raise problem(file, None, f"cannot be read: {error.strerror}") from None


def _candidates(path: Path, format: str) -> list[Path]:
    """Return the files at or under `path` that a corpus of this format may consist of."""
    if format == "datasets" and path.is_dir():
        return _arrow_files(path)
    try:
        if format == "schema" and path.is_dir():
            return []
        if format == "three_file":
            folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())] if path.is_dir() else []
            return [file for folder in folders for name in THREE_FILES if (file := folder / name).is_file()]
        if path.is_file():
            return [path] if path.name.endswith(SUFFIXES[format]) else []
        files = [file for file in sorted(path.rglob("*")) if _belongs(file, path, format)]
        if format == "parquet":
            for folder in sorted({parent for file in files for parent in file.parents if parent.is_relative_to(path)}):
                _refuse_table(folder)
                if folder != path and _PARTITION.fullmatch(folder.name):
                    what = f"{folder.name} is a column, by the name of a folder, and is not read"
                    raise problem(path, None, f"{what}; allowed: a table with all columns in its files")
        return files
    except OSError as error:  # such as a folder without read permission
        raise problem(Path(error.filename or path), None, f"cannot be read: {error.strerror}") from None
