"""Which format a path holds, and which files are the corpus."""

from __future__ import annotations

import json
from pathlib import Path

from trainables.corpora.text import problem, read_bytes

THREE_FILES = ("seq.in", "seq.out", "label")
SUFFIXES = {
    "nlu_eval": (".csv",),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
    "conll": (".conll", ".bio", ".iob"),
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet",),
    "datasets": (".arrow",),
}
FORMATS = ("three_file", *SUFFIXES)
_STATE = "state.json"


def detect_format(path: Path) -> str:
    """The format of a file by its suffix, of a folder by what it holds.

    Raises:
        UserError: where nothing tells, or two formats lie side by side.
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
    raise problem(path, None, f"no corpus of a known format is there; {how}, or name files so: {known}")


def corpus_files(path: Path, format: str) -> list[Path]:
    """The files that the corpus of this format consists of, sorted. A single file needs no particular suffix.

    Raises:
        UserError: where there is none, or one of the three files of a folder is missing.
    """
    if path.is_file() and format != "three_file":
        return [path]
    files = _candidates(path, format)
    if not files:
        names = THREE_FILES if format == "three_file" else tuple("*" + suffix for suffix in SUFFIXES[format])
        raise problem(path, None, f"no {format} corpus is there: expected {', '.join(names)}")
    for file in files:
        if file.suffix == ".gz" and file.with_suffix("") in files:
            raise problem(file, None, f"{file.stem} lies beside it: the same twice; allowed: one of the two")
    if format == "three_file":
        for folder in sorted({file.parent for file in files}):
            missing = [name for name in THREE_FILES if not (folder / name).is_file()]
            if missing:
                raise problem(
                    folder,
                    None,
                    f"{' and '.join(missing)} missing; three_file needs {', '.join(THREE_FILES)}",
                )
    return files


def _is_nlu_eval(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            head = opened.readline(1 << 16)
    except OSError as error:
        raise problem(file, None, f"cannot be read: {error.strerror}") from None
    return b"scenario" in head and b"answer_annotation" in head


def _arrow_files(path: Path) -> list[Path]:
    """The files of a data set, or of each of its splits; others lie beside them, such as those of its cache."""
    files = []
    for state in [path / _STATE, *sorted(path.glob(f"*/{_STATE}"))]:
        if not state.is_file():
            continue
        try:
            names = [one["filename"] for one in json.loads(read_bytes(state))["_data_files"]]
            files += [state.parent / Path(name).name for name in names]
        except (ValueError, KeyError, TypeError):
            raise problem(state, None, "is no state of a data set; allowed: a folder that save_to_disk wrote") from None
    return files


def _belongs(file: Path, root: Path, format: str) -> bool:
    """Hidden files, and those in hidden folders, are what editors and the like leave."""
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return file.name.endswith(SUFFIXES[format]) and not hidden and file.is_file()


def _candidates(path: Path, format: str) -> list[Path]:
    if format == "datasets" and path.is_dir():
        return _arrow_files(path)
    try:
        if format == "three_file":
            folders = [path, *sorted(child for child in path.iterdir() if child.is_dir())] if path.is_dir() else []
            return [file for folder in folders for name in THREE_FILES if (file := folder / name).is_file()]
        if path.is_file():
            return [path] if path.name.endswith(SUFFIXES[format]) else []
        return [file for file in sorted(path.rglob("*")) if _belongs(file, path, format)]
    except OSError as error:  # a folder on the way that is not this user's
        raise problem(Path(error.filename or path), None, f"cannot be read: {error.strerror}") from None
