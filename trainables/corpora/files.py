"""Strict reading of a corpus' files, and errors that name their place."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edp.spec import UserError


def problem(path: Path, line: int | None, text: str) -> UserError:
    """Return a one-line error about a corpus file, or about its line (1 is the first)."""
    return UserError(f"{path}: {text}" if line is None else f"{path}, {row_word(path)} {line}: {text}")


def row_word(path: Path) -> str:
    """Return what a file has one of for each utterance, as its messages call it."""
    return "row" if path.suffix in (".parquet", ".arrow") else "line"


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turn the system's errors of a block, such as a folder without read permission, into a `problem`."""
    try:
        yield
    except OSError as error:
        raise problem(Path(error.filename or path), None, f"cannot be read: {error.strerror or error}") from None


GZIPPED = (".jsonl.gz", ".ndjson.gz")
_TABLE, _UNPACK = "a table in CSV or Parquet", "the unpacked files"
_KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (rb"version https://git-lfs", "a pointer of Git LFS, not the file itself", "the file, by git lfs pull"),
    (rb"PK\x03\x04[\s\S]*?(?:\[Content_Types\]\.xml|xl/)|\xd0\xcf\x11\xe0", "a workbook of Excel", _TABLE),
    (rb"PK\x03\x04[\s\S]*?data\.pkl|\x80[\x02-\x05]", "a pickle, which may run code when it is read", _TABLE),
    (rb"PK\x03\x04", "a zip", _UNPACK),
    (rb"\x1f\x8b", "packed with gzip", "the unpacked file, or JSON lines with a name that ends in .jsonl.gz"),
    (rb"BZh\d1AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a", "packed", _UNPACK),
    (
        rb"Obj\x01|ORC[\x00-\x08\x0a-\x0c\x0e-\x1f\x80-\xff]|PARE[\s\S]{2,3}\x00|\x89HDF|SQLite format 3\0",
        "a table of another kind",
        _TABLE,
    ),
    (rb"ARROW1\0", "an Arrow file (Feather), not a stream", "Parquet, or a folder that save_to_disk of datasets wrote"),
    (rb"\s*(?:<\?xml|<!DOCTYPE|<html)", "XML or HTML", "JSON lines or a table"),
    (rb"\xff\xfe|\xfe\xff", "text in UTF-16", "the file saved as UTF-8"),
)
"""Formats that are not read, by their first bytes: a pattern, the name, and what is read in their place."""

_SCHEMA = "corpus.schema, for the labels and the text of its developers"
_KEYS: tuple[tuple[str, str, str], ...] = (
    (r'"(?:interactionModel|languageModel)"', "an interaction model of Alexa", _SCHEMA),
    (r'"rasa_nlu_data"', "training data of Rasa 1", "nlu.yml, by rasa data convert nlu, as corpus.schema"),
    (r'"oos_(?:train|val|test)"', "CLINC150 as published", "edp-sweep data fetch clinc150"),
    (
        r'"(?:labels?|entities)"\s*:\s*\[\s*(?:\[\s*\d|\{[^{}]*"start_offset"\s*:)|"(?:from|to)_name"\s*:|"spans"\s*:\s*\[\s*\{',
        "an export with offsets, as of doccano, Prodigy and Label Studio",
        "JSON lines with tokens, tags and intent, or its export as CoNLL 2003",
    ),
    (r'"usersays"|"isTemplate"', "a part of an agent of Dialogflow", f"the agent's folder or zip as {_SCHEMA}"),
    (r"\s*\[\s*\{", "one list of JSON", "an object per line, by jq -c '.[]'"),
)
"""The same for JSON, by its keys."""


def refuse_known(path: Path, head: bytes) -> None:
    """Raise if a file's first bytes are those of a format that is known by name and not read."""
    for pattern, name, allowed in _KNOWN:
        if re.match(pattern, head[:4096]) and not (path.name.endswith(GZIPPED) and name == "packed with gzip"):
            raise problem(path, None, f"is {name}; allowed: {allowed}")


def refuse_json(path: Path, head: str) -> None:
    """Raise as `refuse_known` if the text of a file begins as JSON of a tool that is known by name."""
    for pattern, name, allowed in _KEYS if re.match(r"\s*[\[{]", head) else ():
        if re.match(pattern, head) if pattern.startswith(r"\s") else re.search(pattern, head):
            raise problem(path, None, f"is {name}; allowed: {allowed}")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in one of `GZIPPED`.

    Raises:
        UserError: for a file that cannot be opened or unpacked, or that is none of a corpus (`refuse_known`).
    """
    with opening(path):
        raw = path.read_bytes()
    refuse_known(path, raw)
    if path.name.endswith(GZIPPED):
        try:
            raw = gzip.decompress(raw)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise problem(path, None, f"cannot be unpacked: {str(error)[:1].lower()}{str(error)[1:]}") from None
        refuse_known(path, raw)
    return raw


def read_text(path: Path) -> str:
    """Return the text of a file, with a line feed at the end of each line.

    Only CR LF and LF end a line: other characters that Unicode counts as line ends occur inside real tokens.

    Raises:
        UserError: as `read_bytes`, and for a file that is blank, or not UTF-8 (with the line of the first bad byte).
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
    """Return the lines of `read_text`, without their ends and without blank lines at the end of the file."""
    lines = read_text(path).split("\n")
    while not lines[-1].strip():
        lines.pop()
    return lines
