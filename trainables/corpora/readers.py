"""Read utterances from files, with a function for each format; `auto` detects the format.

| format | files | one utterance |
|---|---|---|
| `three_file` | `seq.in`, `seq.out`, `label` in a folder, or in its sub-folders | line n of each file |
| `nlu_eval` | a CSV file, `;` between columns, with a header | a row, see `_nlu_eval` |
| `jsonl` | one file or a folder of them, also packed with gzip | a line, see `_jsonl` |
| `conll` | one file or a folder of them | a block of lines, see `_conll` |
| `csv`, `parquet` | one file or a folder of them | a row, see `trainables.corpora.tables` |
| `datasets` | a folder that `save_to_disk` of Hugging Face's `datasets` wrote | a row, likewise |
| `schema` | a schema, see `trainables.corpora.schema` | made from its samples |

The user of an utterance is optional: the key `user`, a column, or a comment `# user: NAME`. Either all utterances of a
corpus have a user, or none has. The same holds for the intent in `jsonl`, `conll` and tables, and for the tags in
`jsonl` and tables: a corpus without intents has only slots, one without tags only intents.

Blanks at the end of a line, CR LF, and blank lines at the end of a file are allowed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from edp.spec import UserError
from trainables.config import ColumnsSpec, Quoting
from trainables.config.plugins import load_plugin, plugins, refused
from trainables.corpora.files import problem, read_lines, read_text, refuse_json
from trainables.corpora.formats import FORMATS, THREE_FILES, corpus_files, detect_format
from trainables.corpora.schema import read_schema
from trainables.corpora.schema_text import make_text
from trainables.corpora.tables import NAMES, arrow_table, csv_table, read_csv
from trainables.corpora.types import NO_INTENT, SURROGATE, Record, Utterance, all_or_none, checked, split_blanks
from trainables.records.files import one_line


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
    """Return the utterances of `read_corpus` with their files and lines.

    Raises:
        UserError: as `read_corpus`.
    """
    if not path.exists():
        raise problem(path, None, "there is no such file or folder")
    resolved = detect_format(path) if format == "auto" else format
    if resolved not in FORMATS and resolved not in plugins("readers"):
        raise UserError(f"corpus.format = {format}; allowed: auto, {', '.join(FORMATS)}")
    files = corpus_files(path, resolved)
    if quoting != "auto" and resolved not in _QUOTED:
        raise UserError(f"corpus.quoting = {quoting}: format {resolved} has none; allowed with {', '.join(_QUOTED)}")
    options: dict[str, Any] = {"quoting": quoting} if resolved in _QUOTED else {}
    if columns is not None and resolved not in _WITH_COLUMNS:
        raise UserError(f"corpus.columns: format {resolved} has none; allowed with {', '.join(_WITH_COLUMNS)}")
    if resolved in _WITH_COLUMNS:
        options["columns"] = columns or ColumnsSpec()
    units = list(dict.fromkeys(file.parent for file in files)) if resolved == "three_file" else files
    records = []
    for unit in units:
        reader = _READERS.get(resolved) or functools.partial(_by_plugin, resolved)
        found = list(reader(unit, **options))
        if columns is None or columns.text is None:
            _refuse_counts(found)
        records += found
    return all_or_none(records)


def _by_plugin(name: str, path: Path) -> Iterator[Record]:
    """Read a file by a plugin, a function of the file that yields an `Utterance` each; the line is its number."""
    reader = load_plugin("readers", name)
    try:
        for line, one in enumerate(reader(path), start=1):
            yield checked(list(one.tokens), list(one.tags), one.intent or None, path, line, user=one.user or None)
    except UserError:
        raise
    except Exception as error:  # a package from elsewhere can fail in any way
        raise refused("readers", name, f"{path}: {type(error).__name__}: {one_line(error)}") from None


_COUNT = re.compile(r"\d+(?:[-.]\d+)?")


def _refuse_counts(records: list[Record]) -> None:
    """Raise if the words of a file are an index, or a document's name in each line: the column before the words.

    Raises:
        UserError: naming the setting.
    """
    texts = [one.utterance.tokens for one in records]
    long = [text for text in texts if len(text) > 2]
    named = len(long) > 1 and all(len(set(text)) == 1 for text in texts)
    if records and (named or all(_COUNT.fullmatch(word) for text in texts for word in text)):
        what = "one word again and again" if named else "numbers"
        how = "corpus.columns.text, the name of another column, and of CoNLL its number (data check: --column text=2)"
        raise problem(records[0].path, records[0].line, f"all utterances of the file are {what}; allowed: {how}")


def _schema(path: Path) -> Iterator[Record]:
    """Make the text of a schema; the line is that of `edp-sweep data text --output`."""
    schema, unread = read_schema(path, str(path))
    made = make_text(schema.text)
    if not made:
        raise problem(path, None, "the schema has no samples to make text of; allowed: one with samples")
    for line, one in enumerate(made, start=1):
        record = checked(list(one.tokens), list(one.tags), one.intent or None, Path(f"{path} (its text)"), line)
        yield record._replace(unread=unread)


def _three_file(folder: Path) -> Iterator[Record]:
    """Read parallel lines: tokens in `seq.in`, tags in `seq.out`, the intent in `label`."""
    columns = [read_lines(folder / name) for name in THREE_FILES]
    shortest = min(len(column) for column in columns)
    for line in range(shortest):
        tokens, tags = split_blanks(columns[0][line]), split_blanks(columns[1][line])
        intent = columns[2][line].strip()
        if not tokens:
            raise problem(folder / "seq.in", line + 1, "empty utterance: it has no tokens")
        if not intent:
            raise problem(folder / "label", line + 1, "the utterance has no intent")
        yield checked(tokens, tags, intent, folder / "seq.out", line + 1)
    if any(len(column) != shortest for column in columns):
        counts = ", ".join(f"{name} {len(column)}" for name, column in zip(THREE_FILES, columns, strict=True))
        short = THREE_FILES[[len(column) for column in columns].index(shortest)]
        raise problem(folder / short, shortest + 1, f"the three files differ in their number of lines: {counts}")


_ANNOTATION = re.compile(r"\[\s*([^\s\[\]:]+)\s*:\s*([^\[\]]*?)\s*\]")


def _nlu_eval(path: Path, quoting: Quoting = "auto") -> Iterator[Record]:
    """Read rows of NLU-Evaluation-Data, with columns `scenario`, `intent` and `answer_annotation`.

    Scenario and intent together are the intent; `[type : words]` in the annotation marks a slot.
    """
    header, rows = read_csv(path, read_text(path), ";", quoted=quoting != "plain")
    needed = ("scenario", "intent", "answer_annotation")
    missing = [name for name in needed if name not in header]
    if missing:
        raise problem(path, 1, f"the header lacks {', '.join(missing)}; needed, with ; between: {', '.join(needed)}")
    user = next((name for name in header if name.strip().lower() in NAMES["user"]), None)
    unread = tuple(name for name in header if name not in (*needed, user))
    for line, row in rows:
        scenario, intent = row["scenario"].strip(), row["intent"].strip()
        if not scenario or not intent:
            raise problem(path, line, "the row has no scenario or no intent")
        tokens, tags = _annotated(row["answer_annotation"], path, line)
        said_by = row[user] if user is not None else None
        yield checked(tokens, tags, f"{scenario}_{intent}", path, line, user=said_by)._replace(unread=unread)


def _annotated(text: str, path: Path, line: int) -> tuple[list[str], list[str]]:
    """Return the tokens and tags of an annotation."""
    tokens: list[str] = []
    tags: list[str] = []
    position = 0
    for match in [*_ANNOTATION.finditer(text), None]:
        outside = text[position : match.start() if match else None]
        if "[" in outside or "]" in outside:
            raise problem(path, line, f"a bracket that is not [type : words] in {outside.strip()!r}")
        plain = split_blanks(outside)
        tokens += plain
        tags += ["O"] * len(plain)
        if match:
            words = split_blanks(match[2])
            if not words:
                raise problem(path, line, f"the slot {match[0]} has no words")
            tokens += words
            tags += [f"B-{match[1]}"] + [f"I-{match[1]}"] * (len(words) - 1)
            position = match.end()
    return tokens, tags


_NOT_IN_A_WORD = re.compile("[ \t\r\n\ud800-\udfff]")


def _jsonl(path: Path) -> Iterator[Record]:
    """Read one object per line, or a line of MASSIVE (`_massive`), and ignore blank lines and other keys.

        {"tokens": ["to", "york"], "tags": ["O", "B-city"], "intent": "book_flight", "user": "u17"}

    The first line decides whether the lines of a file have tags, an intent, or both.
    """
    needed: tuple[str, ...] = ()
    lines = read_lines(path)
    refuse_json(path, "\n".join(lines[:100]))
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text, object_pairs_hook=_without_double_keys)
        except json.JSONDecodeError as error:
            raise problem(path, line, f"not JSON: {error.msg} at column {error.colno}") from None
        except RecursionError:
            raise problem(path, line, "not an utterance: JSON nested too deep") from None
        except _DoubleKeyError as error:
            raise problem(path, line, f"the key {error} occurs twice; allowed: once") from None
        except ValueError:  # Python refuses numbers with thousands of digits, which take too long to read
            raise problem(path, line, "not an utterance: a number of thousands of digits") from None
        if not isinstance(row, dict):
            raise problem(path, line, "not an object; needed: the keys tokens, tags, intent")
        if "tokens" not in row and isinstance(row.get("annot_utt"), str):
            row = _massive(row, path, line)
        if "tokens" not in row and any(name in row for name in (*NAMES["text"], "utt")):
            what = "the key tokens is missing, a list of words; a text as one string is read from CSV and Parquet"
            raise problem(path, line, f"{what}; needed: tokens, and tags or intent")
        needed = needed or ("tokens", *([key for key in ("tags", "intent") if key in row] or ("tags", "intent")))
        for key in ("tokens", "tags", "intent"):
            if key in needed and key not in row:
                raise problem(path, line, f"the key {key} is missing; needed: {', '.join(needed)}")
            if key in row and key not in needed:
                raise problem(path, line, f"the key {key} is new here; needed: {', '.join(needed)}, as above")
        for key in ("tokens", "tags"):
            if key not in row:
                continue
            if not isinstance(row[key], list) or not all(isinstance(word, str) for word in row[key]):
                raise problem(path, line, f"{key} must be a list of strings")
            for word in row[key]:
                if not word or _NOT_IN_A_WORD.search(word):
                    raise problem(path, line, f"{key} holds {word!r}; needed: one word per string, without blanks")
        intent = row.get("intent", NO_INTENT)
        if not isinstance(intent, str) or SURROGATE.search(intent):
            raise problem(path, line, "intent must be a string")
        intent = intent.strip() if "intent" in row else None
        who = next((key for key in row if key.lower() in NAMES["user"]), "user")
        unread = tuple(key for key in row if key not in ("tokens", "tags", "intent", who))
        record = checked(row["tokens"], row.get("tags"), intent, path, line, user=row.get(who))
        yield record._replace(unread=unread)


def _massive(row: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
    """Return a line of MASSIVE as one of ours: words and slots from the annotation, the worker as the user.

    {"id": "0", "partition": "train", "intent": "play", "utt": "put abba on", "annot_utt": "put [artist : abba] on",
     "worker_id": "7"}
    """
    tokens, tags = _annotated(row["annot_utt"], path, line)
    user = {"user": row["worker_id"]} if "worker_id" in row else {}
    others = {key: value for key, value in row.items() if key not in ("annot_utt", "worker_id")}
    return {"tokens": tokens, "tags": tags, **user, **others}


class _DoubleKeyError(Exception):
    """A key that occurs twice in a JSON object."""


def _without_double_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object of these keys and values, each key once; Python's own reader would keep the last one."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DoubleKeyError(next(name for name in names if names.count(name) > 1))
    return row


_COMMENT = re.compile(r"#\s*(intent|user)\s*[:=]\s*(.*?)\s*$", re.IGNORECASE)
_TAG = re.compile(r"O|[BI]-\S+")
_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(.*)")
_RANGE = re.compile(r"\d+[-.]\d+")
_MOST_COLUMNS = 100
_NEW_DOCUMENT = "-DOCSTART-"  # a line of CoNLL-2003 that is no token


def _conll(path: Path, columns: ColumnsSpec) -> Iterator[Record]:
    """Read blocks of lines, separated by blank lines: the intent if there are intents, then a token per line.

        # intent: book_flight        (if there are intents; or: # intent = book_flight)
        # user: u17                  (if users are known)
        to      O
        new     B-city
        york    I-city

    The line of a token has at least two columns, separated by tabs or blanks: the first is the token, the last its tag,
    unless the file begins with `# global.columns = ID FORM … NER` (CoNLL-U Plus), or `columns` says otherwise.
    Before the first token of a block, a line that starts with `#` is a comment, unless it is a tagged word such as
    `#now`, or a tagged `#`. After the first token, `#` is a token like any other.
    """
    tokens: list[str] = []
    tags: list[str] = []
    intent, first = "", 0
    user: str | None = None
    unread: tuple[str, ...] = ()
    lines = read_lines(path)
    word_at, tag_at, names = _places(lines[0], columns, path)
    for line, text in enumerate([*lines, ""], start=1):
        if line == 1 and text.startswith('{"'):  # other messages would quote its words and its user
            what = "JSON; needed: a token and its tag, or corpus.format = jsonl (data check: --format)"
            raise problem(path, line, what)
        cells = text.split("\t") if names and "\t" in text.strip() else split_blanks(text)
        comment = _COMMENT.match(text) if not tokens else None
        if comment:
            is_intent = comment[1].lower() == "intent"
            if intent if is_intent else user is not None:
                what = "intent" if is_intent else "user"
                raise problem(path, line, f"a second {what} before any token; the comments begin on line {first}")
            if not (intent or user is not None):
                first = line
            if is_intent:
                intent = comment[2]
            else:
                user = comment[2]
        elif not tokens and (_is_comment(text, cells) or cells[:1] == [_NEW_DOCUMENT]):
            continue
        elif cells:
            if len(cells) <= max(word_at, tag_at, 1):
                needed = f"columns 1 to {max(word_at, tag_at) + 1}" if names else "a token and its tag"
                there = "one column" if len(cells) == 1 else f"{len(cells)} columns"
                raise problem(path, line, f"{text.strip()!r} is {there}; needed: {needed}")
            if word_at > 0 and _RANGE.fullmatch(cells[0]):  # of CoNLL-U: its words follow, each in a line of its own
                continue
            if not tokens:
                first = line
                called = (names or [f"column {i}" for i in range(1, len(cells) + 1)])[: len(cells)]
                unread = tuple(name for name in called if name not in (called[word_at], called[tag_at]))
            word, tag = cells[word_at].strip(), cells[tag_at].strip()
            if not word or " " in word:
                raise problem(path, line, f"{word!r} is no token; needed: one word, without blanks")
            tokens.append(word)
            tags.append(tag)
        elif tokens:
            record = checked(tokens, tags, intent or None, path, first, a_tag_a_line=True, user=user)
            yield record._replace(unread=unread)
            tokens, tags, intent, user = [], [], "", None
        elif intent or user is not None:
            what = f"the intent {intent}" if intent else "a user"
            raise problem(path, first, f"empty utterance: no tokens after {what}")


def _places(head: str, columns: ColumnsSpec, path: Path) -> tuple[int, int, list[str]]:
    """Return the index of the tokens' column, that of the tags', and the names of all columns, if either is chosen.

    Args:
        head: the first line of a CoNLL file, which may name the columns.

    Raises:
        UserError: for a chosen column that is not there, or names that are not known.
    """
    match = _COLUMNS.match(head)
    names = match[1].split() if match else []
    found: dict[str, int] = {}
    for kind, usual in (("text", ("form", *NAMES["text"])), ("tags", ("ner", "ne", *NAMES["tags"]))):
        wanted = getattr(columns, kind)
        if wanted is None and names:
            wanted = next((name for one in usual for name in names if name.lower() == one), "")
        if wanted is None:
            continue
        if wanted not in names and not (wanted.isdecimal() and 0 < int(wanted) <= (len(names) or _MOST_COLUMNS)):
            allowed = f"one of {', '.join(names)}, or its number" if names else f"a number from 1 to {_MOST_COLUMNS}"
            raise problem(path, None, f"corpus.columns.{kind} = {wanted or 'null'}: no such column; allowed: {allowed}")
        found[kind] = names.index(wanted) if wanted in names else int(wanted) - 1
    if columns.intent is not None or columns.user is not None:
        raise problem(path, None, "corpus.columns: intent and user of CoNLL are in comments; allowed: text and tags")
    if found and not names:
        names = [f"column {i}" for i in range(1, _MOST_COLUMNS + 1)]
    return found.get("text", 0), found.get("tags", -1), names


def _is_comment(text: str, columns: list[str]) -> bool:
    """Return True if a line before the first token of a block is a comment."""
    word_and_tag = len(columns) > 1 and _TAG.fullmatch(columns[-1]) and (columns[0] != "#" or len(columns) == 2)
    return text.startswith("#") and not word_and_tag


_READERS: dict[str, Callable[..., Iterator[Record]]] = {
    "csv": csv_table,
    "parquet": arrow_table,
    "datasets": arrow_table,
    "three_file": _three_file,
    "nlu_eval": _nlu_eval,
    "jsonl": _jsonl,
    "conll": _conll,
    "schema": _schema,
}
_QUOTED = ("csv", "nlu_eval")
_WITH_COLUMNS = ("csv", "parquet", "datasets", "conll")
