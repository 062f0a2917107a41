"""Read tables with an utterance per row: CSV, Parquet, and the Arrow files of Hugging Face's `datasets`.

Text is needed, and intent or tags (docs/corpora.md#your-own). Numbers are replaced by their names if the file has names
for them (`ClassLabel`).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trainables.config import ColumnsSpec, Quoting
from trainables.corpora.files import problem, read_text, refuse_known
from trainables.corpora.types import SURROGATE, Record, checked
from trainables.records.files import one_line

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
_FAULTS = {
    "new-line character": "a line ends with a carriage return alone; save it with line feeds",
    "unexpected end of data": "a quote is never closed (corpus.quoting = plain: no quoting)",
}
"""Errors of Python's reader, which are about the program, in words about the file."""


def csv_table(path: Path, columns: ColumnsSpec, quoting: Quoting = "auto") -> Iterator[Record]:
    """Read a CSV file; its separator is the most frequent of comma, semicolon and tab in the header.

    Programs that write tabs between cells mostly quote none of them, so a quote is then a character like any other,
    unless the cells of the header are quoted.
    """
    text = read_text(path)
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    quoted = quoting == "quoted" or (quoting == "auto" and (delimiter != "\t" or '"' in head))
    header, rows = read_csv(path, text, delimiter, quoted=quoted)
    table = _table(header, columns, path)
    for line, row in rows:
        if not quoted and quoting == "auto" and (column := next((c for c in row if _QUOTED.fullmatch(row[c])), None)):
            how = "corpus.quoting = quoted, or plain if the quotes belong to it (data check: --quoting)"
            raise problem(path, line, f"column {column!r} holds a cell that is quoted as in CSV; allowed: {how}")
        yield table.record(row, path, line)


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
    rows = _rows(csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True, quoting=style), path)
    header = next(rows)[1]

    def by_column() -> Iterator[tuple[int, dict[str, str]]]:
        for line, row in rows:
            if len(row) != len(header):
                raise problem(path, line, f"the row has not the {len(header)} columns of the header")
            yield line, dict(zip(header, row, strict=True))

    return header, by_column()


def _rows(reader: Any, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with its line.

    A cell with a line break is refused: one quote that is never closed would join all rows up to the next quote.
    """
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            what = next((said for known, said in _FAULTS.items() if known in str(error)), str(error))
            raise problem(path, begins, f"not a row of CSV: {what}") from None
        if row is None:
            return
        if more := reader.line_num - begins:
            what = f"a quoted cell goes on for {more} more lines; is a quote never closed?"
            raise problem(path, begins, f"{what} allowed: a row per line (corpus.quoting = plain: no quoting)")
        if row:
            yield begins, row


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
            found = pyarrow.parquet.read_table(source) if packed else pyarrow.ipc.open_stream(source).read_all()
    except (pyarrow.ArrowException, OSError) as error:
        raise problem(path, None, f"is neither Parquet nor an Arrow stream: {one_line(error)}") from None
    table = _table(found.column_names, columns, path, in_lines=False)._replace(names=_class_names(found.schema))
    number = 0
    for batch in found.select(list(table.chosen.values())).to_batches():
        try:
            rows = batch.to_pylist()
        except UnicodeDecodeError as error:
            raise problem(path, None, f"holds text that is not UTF-8 ({error.reason}); save it as UTF-8") from None
        for row in rows:
            number += 1
            yield table.record(row, path, number)


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of the numbers in each column or in its lists, as `datasets` stores them in the metadata."""
    try:
        noted = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    found: dict[str, list[str]] = {}
    for name, feature in noted.items() if isinstance(noted, dict) else ():
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else None
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(one, str) for one in names):
            found[name] = names
    return found


class _Table(NamedTuple):
    """The column of each kind that a table has, the columns that are not read, and the names of numbers by column."""

    chosen: dict[str, str]
    unread: tuple[str, ...]
    names: dict[str, list[str]]

    def record(self, row: dict[str, Any], path: Path, line: int) -> Record:
        """Return the utterance of a row."""
        cells = {kind: row[column] for kind, column in self.chosen.items()}
        try:
            tokens = self._words(cells["text"], "text")
            tags = self._words(cells["tags"], "tags") if "tags" in cells else None
            intent = self._intent(cells["intent"]) if "intent" in cells else None
        except _BadCellError as error:
            kind, fault, allowed = error.args
            raise problem(path, line, f"column {self.chosen[kind]!r} holds {fault}; allowed: {allowed}") from None
        user = "" if "user" in cells and cells["user"] is None else cells.get("user")  # only an empty cell is an error
        return checked(tokens, tags, intent, path, line, user=user, unread=self.unread)

    def _words(self, cell: Any, kind: str) -> list[str]:
        """Return the words or tags in a cell."""
        if isinstance(cell, str) and _LIST.fullmatch(cell):
            allowed = "words with blanks between, or a list in Parquet or JSON lines"
            raise _BadCellError(kind, f"{_shown(cell)}, a list that was written as text", allowed)
        if not isinstance(cell, str | list):
            raise _BadCellError(kind, _shown(cell), "words with blanks between, or a list of words")
        if isinstance(cell, str):
            words = [word for word in _BLANKS.split(cell) if word]
        else:
            words = [self._named(item, kind) for item in cell]
        for word in words:
            if not word or _BLANKS.search(word) or SURROGATE.search(word):
                raise _BadCellError(kind, repr(word), "one word per string, without blanks")
        return words

    def _intent(self, cell: Any) -> str:
        """Return the intent in a cell."""
        if self.chosen["intent"] not in self.names:
            if isinstance(cell, int) and not isinstance(cell, bool):
                return str(cell)
            if not isinstance(cell, str):
                raise _BadCellError("intent", _shown(cell), "a string or a whole number")
        label = self._named(cell, "intent").strip()
        if not label or SURROGATE.search(label):
            raise _BadCellError("intent", repr(label), "an intent in every row")
        return label

    def _named(self, item: Any, kind: str) -> str:
        """Return a string as it is, or the name of a number; words of an utterance are no numbers."""
        if isinstance(item, str):
            return item
        known = self.names.get(self.chosen[kind], []) if kind != "text" else []
        if isinstance(item, int) and not isinstance(item, bool) and 0 <= item < len(known):
            return known[item]
        allowed = f"a string, or 0 to {len(known) - 1}, which have names" if known else "a string"
        raise _BadCellError(kind, _shown(item), allowed)


class _BadCellError(Exception):
    """A cell that does not hold what its column needs: the kind of the column, the cell, and what is allowed."""


def _shown(cell: object) -> str:
    """Return a cell as it is quoted in a message."""
    return "nothing" if cell is None else repr(cell)[:80]


def _table(header: list[str], columns: ColumnsSpec, path: Path, *, in_lines: bool = True) -> _Table:
    """Return the column of each kind that the table has.

    Args:
        in_lines: True if the header is the first line of a text.
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
        if found is None:
            continue
        if header.count(found) > 1:
            raise problem(path, None, f"the column {found!r} occurs twice; {there}")
        if other := next((other for other, name in chosen.items() if name == found), None):
            raise problem(path, None, f"corpus.columns.{kind} = {found}: that is the column of {other}; {there}")
        chosen[kind] = found
    lacking = [kind for kind in ("text", "intent", "tags") if kind not in chosen]
    if "text" in lacking or len(lacking) == 2:
        allowed = "; ".join(f"corpus.columns.{kind}, or {', '.join(NAMES[kind])}" for kind in lacking)
        what = "text" if "text" in lacking else "intent or tags"
        how = f"allowed: {allowed} (data check: --column KIND=NAME)"
        raise problem(path, None, f"no column of {what}; {there}; {how}")
    return _Table(chosen, tuple(name for name in header if name not in chosen.values()), {})
