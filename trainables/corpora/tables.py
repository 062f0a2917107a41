"""Read tables with an utterance per row: CSV, Parquet, and the Arrow files of Hugging Face's `datasets`.

| column | content |
|---|---|
| text | words separated by blanks, or a list of words |
| intent | a string or a number |
| tags | strict BIO, one tag per word, separated by blanks or as a list |
| user | the user who said the utterance, a string or a number |

Text is needed, and intent or tags. Numbers are replaced by their names if the file has names for them (`ClassLabel`).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from trainables.config import ColumnsSpec, Quoting
from trainables.corpora.files import problem, read_text, refuse_known
from trainables.corpora.types import SURROGATE, Record, checked

NAMES = {
    "text": ("tokens", "words", "text", "utterance", "sentence", "query"),
    "intent": ("intent", "label", "category"),
    "tags": ("tags", "ner_tags", "slot_tags", "slots", "slot_labels"),
    "user": ("user", "userid", "user_id"),
}
"""The usual names of columns, in any case; without `corpus.columns`, the first one that a table has is used."""

_LIST = re.compile(r"""\s*\[\s*['"].*['"]\s*\]\s*""", re.DOTALL)
"""A list of strings that was written to CSV as text."""
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
"""A cell as CSV quotes one that holds quotes: they are doubled. `"hey jude"` is no such cell."""
_BLANKS = re.compile(r"[ \t\r\n]+")


def csv_table(path: Path, columns: ColumnsSpec, quoting: Quoting = "auto") -> Iterator[Record]:
    """Read a CSV file; its separator is the most frequent of comma, semicolon and tab in the header.

    Programs that write tabs between cells mostly quote none of them, so a quote is then a character like any other,
    unless the cells of the header are quoted.
    """
    text = read_text(path)
    delimiter = _delimiter(text)
    quoted = quoting == "quoted" or (quoting == "auto" and not _is_unquoted(text))
    header, rows = read_csv(path, text, delimiter, quoted=quoted)
    chosen = _chosen(header, columns, path)
    unread = _unread(header, chosen)
    for line, row in rows:
        if not quoted and quoting == "auto" and (column := next((c for c in row if _QUOTED.fullmatch(row[c])), None)):
            how = "corpus.quoting = quoted, or plain if the quotes belong to it (data check: --quoting)"
            raise problem(path, line, f"column {column!r} holds a cell that is quoted as in CSV; allowed: {how}")
        yield _record(row, chosen, {}, path, line)._replace(unread=unread)


def _delimiter(text: str) -> str:
    return max(",;\t", key=text.partition("\n")[0].count)


def _is_unquoted(text: str) -> bool:
    """Return True for tabs between cells and a header without quotes."""
    return _delimiter(text) == "\t" and '"' not in text.partition("\n")[0]


def read_csv(
    path: Path, text: str, delimiter: str, *, quoted: bool = True
) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """Return the header, and the rows by column, each with its line.

    Args:
        quoted: True if a cell may be quoted, as in CSV.

    Raises:
        UserError: for text that is not CSV, a row of another length than the header, or a cell with a line break.
    """
    style: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.DictReader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True, quoting=style)
    try:
        header = list(reader.fieldnames or ())
    except csv.Error as error:
        raise problem(path, 1, f"not a row of CSV: {_why(error)}") from None
    _refuse_breaks(header, path, reader.line_num)
    return header, _rows(reader, path)


def _refuse_breaks(cells: Iterable[str], path: Path, ends: int) -> None:
    """Raise if a cell has a line break: one quote that is never closed would join all rows up to the next quote.

    Args:
        cells: the cells of a row.
        ends: the last line of the row.

    Raises:
        UserError: with the line that the row begins on.
    """
    breaks = [cell.count("\n") for cell in cells]
    if any(breaks):
        what = f"a quoted cell goes on for {max(breaks)} more lines; is a quote never closed?"
        raise problem(path, ends - sum(breaks), f"{what} allowed: a row per line (corpus.quoting = plain: no quoting)")


def _why(error: csv.Error) -> str:
    """Return the text of an error, in words about the file where Python's own are about the program."""
    if "new-line character" in str(error):
        return "a line ends with a carriage return alone; save it with line feeds"
    if "unexpected end of data" in str(error):
        return "a quote is never closed (corpus.quoting = plain: no quoting)"
    return str(error)


def _rows(reader: csv.DictReader[str], path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows, each with its line."""
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise problem(path, begins, f"not a row of CSV: {_why(error)}") from None
        if row is None:
            return
        long = row.get(None, [])  # the cells beyond the header's
        _refuse_breaks((cell for cell in (*row.values(), *long) if isinstance(cell, str)), path, reader.line_num)
        if None in row or None in row.values():
            width = len(reader.fieldnames or ())
            raise problem(path, reader.line_num, f"the row has not the {width} columns of the header")
        yield reader.line_num, row


def arrow_table(path: Path, columns: ColumnsSpec) -> Iterator[Record]:
    """Read a Parquet file, or an Arrow stream as `datasets` writes it."""
    import pyarrow  # takes half a second to import
    import pyarrow.parquet

    try:
        with pyarrow.OSFile(str(path)) as source:
            head = source.read(1 << 10)
            refuse_known(path, head)
            packed = head.startswith(b"PAR1")
            source.seek(0)
            table = pyarrow.parquet.read_table(source) if packed else pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise problem(path, None, f"is neither Parquet nor an Arrow stream: {' '.join(str(error).split())}") from None
    chosen, names = _chosen(table.column_names, columns, path, in_lines=False), _class_names(table.schema.metadata)
    unread, row = _unread(table.column_names, chosen), 0
    for batch in table.select(list(chosen.values())).to_batches():
        try:
            rows = batch.to_pylist()
        except UnicodeDecodeError as error:
            raise problem(path, None, f"holds text that is not UTF-8 ({error.reason}); save it as UTF-8") from None
        for values in rows:
            row += 1
            yield _record(values, chosen, names, path, row)._replace(unread=unread)


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """Return the names of the numbers in each column or in its lists, as `datasets` stores them in the schema."""
    if not metadata or b"huggingface" not in metadata:
        return {}
    try:
        noted = json.loads(metadata[b"huggingface"])
    except ValueError:
        return {}
    for key in ("info", "features"):
        noted = noted.get(key) if isinstance(noted, dict) else None
    found: dict[str, list[str]] = {}
    for name, feature in noted.items() if isinstance(noted, dict) else ():
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else None
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(one, str) for one in names):
            found[name] = names
    return found


def _chosen(header: list[str], columns: ColumnsSpec, path: Path, *, in_lines: bool = True) -> dict[str, str]:
    """Return the column of each kind that the table has.

    Args:
        in_lines: True if the header is the first line of a text.

    Raises:
        UserError: for a chosen column that is missing, occurs twice or has two kinds, for no text, or for neither
            intent nor tags.
    """
    known = {name for names in NAMES.values() for name in names} | set(columns.model_dump().values())
    # Without a header, the first line is an utterance and may name its user, so it is not quoted.
    there = f"it has {', '.join(map(repr, header))}"
    if in_lines and not any(name in known or name.strip().lower() in known for name in header):
        there = f"none of the {len(header)} names in its first line is known: is that a header?"
    lowered = {name.strip().lower(): name for name in reversed(header)}
    chosen: dict[str, str] = {}
    for kind, names in NAMES.items():
        wanted = getattr(columns, kind)
        if wanted is not None and wanted not in header:
            raise problem(path, None, f"corpus.columns.{kind} = {wanted}: there is no such column; {there}")
        found = wanted or next((lowered[name] for name in names if name in lowered), None)
        if found is not None and header.count(found) > 1:
            raise problem(path, None, f"the column {found!r} occurs twice; {there}")
        if found is not None:
            chosen[kind] = found
    lacking = [kind for kind in ("text", "intent", "tags") if kind not in chosen]
    for kind, found in chosen.items():
        other = next(other for other, name in chosen.items() if name == found)
        if other != kind:
            raise problem(path, None, f"corpus.columns.{kind} = {found}: that is the column of {other}; {there}")
    if "text" in lacking or len(lacking) == 2:
        allowed = "; ".join(f"corpus.columns.{kind}, or {', '.join(NAMES[kind])}" for kind in lacking)
        what = "text" if "text" in lacking else "intent or tags"
        how = f"allowed: {allowed} (data check: --column KIND=NAME)"
        raise problem(path, None, f"no column of {what}; {there}; {how}")
    return chosen


def _unread(header: list[str], chosen: dict[str, str]) -> tuple[str, ...]:
    """Return the columns that are not read."""
    return tuple(name for name in header if name not in chosen.values())


def _record(row: dict[str, Any], chosen: dict[str, str], names: dict[str, list[str]], path: Path, line: int) -> Record:
    """Return the utterance of a row, given the column of each kind and the names of numbers."""
    try:
        tokens = _words(row, chosen["text"], {})
        tags = _words(row, chosen["tags"], names) if "tags" in chosen else None
        intent = _label(row, chosen["intent"], names) if "intent" in chosen else None
    except _BadCellError as error:
        raise problem(path, line, str(error)) from None
    user = row[chosen["user"]] if "user" in chosen else None
    return checked(tokens, tags, intent, path, line, user="" if user is None and "user" in chosen else user)


class _BadCellError(Exception):
    """A cell that does not hold what its column needs."""

    def __init__(self, column: str, fault: str, allowed: str) -> None:
        super().__init__(f"column {column!r} {fault}; allowed: {allowed}")


def _words(row: dict[str, Any], column: str, names: dict[str, list[str]]) -> list[str]:
    """Return the words or tags in a cell."""
    cell = row[column]
    if isinstance(cell, str) and _LIST.fullmatch(cell):
        allowed = "words with blanks between, or a list in Parquet or JSON lines"
        raise _BadCellError(column, f"holds {_shown(cell)}, a list that was written as text", allowed)
    if isinstance(cell, str):
        words = [word for word in _BLANKS.split(cell) if word]
    elif isinstance(cell, list):
        words = [_named(item, column, names) for item in cell]
    else:
        raise _BadCellError(column, f"holds {_shown(cell)}", "words with blanks between, or a list of words")
    for word in words:
        if not word or _BLANKS.search(word) or SURROGATE.search(word):
            raise _BadCellError(column, f"holds {word!r}", "one word per string, without blanks")
    return words


def _label(row: dict[str, Any], column: str, names: dict[str, list[str]]) -> str:
    """Return the intent in a cell."""
    cell = row[column]
    if isinstance(cell, int) and not isinstance(cell, bool) and column not in names:
        return str(cell)
    if not isinstance(cell, str) and column not in names:
        raise _BadCellError(column, f"holds {_shown(cell)}", "a string or a whole number")
    label = _named(cell, column, names).strip()
    if not label or SURROGATE.search(label):
        raise _BadCellError(column, f"holds {label!r}", "an intent in every row")
    return label


def _named(item: Any, column: str, names: dict[str, list[str]]) -> str:
    """Return a string as it is, or the name of a number."""
    if isinstance(item, str):
        return item
    known = names.get(column, [])
    if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < len(known):
        return known[item]
    allowed = f"a string, or 0 to {len(known) - 1}, which have names" if known else "a string"
    raise _BadCellError(column, f"holds {_shown(item)}", allowed)


def _shown(cell: object) -> str:
    """Return a cell as it is quoted in a message."""
    return "nothing" if cell is None else repr(cell)[:80]
