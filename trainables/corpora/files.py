"""The files of a corpus: the format of a path, and strict reading of text."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

from edp.spec import UserError

THREE_FILES = ("seq.in", "seq.out", "label")
SUFFIXES = {
    "nlu_eval": (".csv",),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
    "conll": (".conll", ".bio", ".iob"),
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet",),
    "datasets": (".arrow",),
    "schema": (".yaml", ".yml"),
}
FORMATS = ("three_file", *SUFFIXES)
_STATE = "state.json"


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
    raise problem(path, None, f"no corpus of a known format is there; {how}, or name files so: {known}")


def corpus_files(path: Path, format: str) -> list[Path]:
    """Return the files of a corpus of this format, sorted; a single file may have any suffix.

    Raises:
        UserError: for no file, the same file packed and unpacked, or a folder that lacks one of the three files.
    """
    if (path.is_file() and format != "three_file") or format == "schema":
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
                what = f"{' and '.join(missing)} missing; three_file needs {', '.join(THREE_FILES)}"
                raise problem(folder, None, what)
    return files


def _is_nlu_eval(file: Path) -> bool:
    """Return True if the header of a CSV file has the columns of NLU-Evaluation-Data."""
    try:
        with file.open("rb") as opened:
            head = opened.readline(1 << 16)
    except OSError as error:
        raise problem(file, None, f"cannot be read: {error.strerror}") from None
    return b"scenario" in head and b"answer_annotation" in head


def _arrow_files(path: Path) -> list[Path]:
    """Return the files of a saved data set or of its splits, without those of its cache beside them."""
    files = []
    for state in [path / _STATE, *sorted(path.glob(f"*/{_STATE}"))]:
        if not state.is_file():
            continue
        try:
            names = [one["filename"] for one in json.loads(read_bytes(state))["_data_files"]]
            files += [state.parent / Path(name).name for name in names]
        except (ValueError, KeyError, TypeError):
            raise problem(state, None, "is not a data set's state; allowed: a folder that save_to_disk wrote") from None
    return files


def _belongs(file: Path, root: Path, format: str) -> bool:
    """Return True if a file is part of the corpus; hidden ones, such as editors leave, are not."""
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return file.name.endswith(SUFFIXES[format]) and not hidden and file.is_file()


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
        return [file for file in sorted(path.rglob("*")) if _belongs(file, path, format)]
    except OSError as error:  # such as a folder without read permission
        raise problem(Path(error.filename or path), None, f"cannot be read: {error.strerror}") from None


def problem(path: Path, line: int | None, text: str) -> UserError:
    """Return a one-line error about a corpus file, or about its line (1 is the first)."""
    return UserError(f"{path}: {text}" if line is None else f"{path}, {row_word(path)} {line}: {text}")


def row_word(path: Path) -> str:
    """Return what a file has one of for each utterance, as its messages call it."""
    return "row" if path.suffix in (".parquet", ".arrow") else "line"


_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def refuse_pointer(path: Path, head: bytes) -> None:
    """Raise if a file begins as a pointer of Git LFS does, which stands in a clone for a file that was not fetched.

    Raises:
        UserError: with the command that fetches it.
    """
    if head.startswith(_LFS_POINTER):
        raise problem(path, None, "is a pointer of Git LFS, not the file itself; fetch it with: git lfs pull")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in `.gz`.

    Raises:
        UserError: for a file that cannot be opened or unpacked.
    """
    try:
        raw = path.read_bytes()
        refuse_pointer(path, raw)
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise problem(path, None, f"cannot be unpacked: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except OSError as error:
        raise problem(path, None, f"cannot be read: {error.strerror}") from None


def read_text(path: Path) -> str:
    """Return the text of a file, with a line feed at the end of each line.

    Only CR LF and LF end a line: other characters that Unicode counts as line ends occur inside real tokens.

    Raises:
        UserError: for a file that cannot be opened, is empty or blank, or is not UTF-8 (with the line of the first bad
            byte).
    """
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise problem(path, line, f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8") from None
    if not text.strip():
        raise problem(path, None, "the file is empty")
    return text.replace("\r\n", "\n")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, without their ends and without blank lines at the end of the file.

    Raises:
        UserError: as `read_text`.
    """
    lines = read_text(path).split("\n")
    while not lines[-1].strip():
        lines.pop()
    return lines
