"""Read utterances from text files, with a function for each format (`trainables.corpora.formats`)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edp.spec import UserError
from trainables.config import ColumnsSpec, Quoting
from trainables.config.plugins import load_plugin, refused
from trainables.corpora.files import problem, read_lines, read_text, refuse_json
from trainables.corpora.schema import read_schema
from trainables.corpora.schema_text import make_text
from trainables.corpora.tables import NAMES, read_csv
from trainables.corpora.types import SURROGATE, Record, checked, split_blanks
from trainables.records.files import one_line

THREE_FILES = ("seq.in", "seq.out", "label")


def by_plugin(name: str, path: Path) -> Iterator[Record]:
    """Read a file by a plugin, a function of the file that yields an `Utterance` each; the line is its number."""
    reader = load_plugin("readers", name)
    try:
        for line, one in enumerate(reader(path), start=1):
            _check_words("tokens", list(one.tokens), path, line)
            _check_words("tags", list(one.tags), path, line)
            _check_intent(one.intent or "", path, line)
            yield checked(list(one.tokens), list(one.tags), one.intent or None, path, line, user=one.user or None)
    except UserError:
        raise
    except Exception as error:  # a package from elsewhere can fail in any way
        raise refused("readers", name, f"{path}: {type(error).__name__}: {one_line(error)}") from None


def made_of_schema(path: Path) -> Iterator[Record]:
    """Make the text of a schema; the line is that of `edp-sweep data text --output`."""
    schema, unread = read_schema(path, str(path))
    made = make_text(schema.text)
    if not made:
        raise problem(path, None, "the schema has no samples to make text of; allowed: one with samples")
    for line, one in enumerate(made, start=1):
        place = Path(f"{path} (its text)")
        yield checked(list(one.tokens), list(one.tags), one.intent or None, place, line, unread=unread)


def three_file(folder: Path) -> Iterator[Record]:
    """Read parallel lines: tokens in `seq.in`, tags in `seq.out`, the intent in `label`."""
    columns = [read_lines(folder / name) for name in THREE_FILES]
    for line, (tokens, tags, intent) in enumerate(zip(*columns, strict=False), start=1):
        if not split_blanks(tokens):
            raise problem(folder / "seq.in", line, "empty utterance: it has no tokens")
        if not intent.strip():
            raise problem(folder / "label", line, "the utterance has no intent")
        yield checked(split_blanks(tokens), split_blanks(tags), intent.strip(), folder / "seq.out", line)
    sizes = dict(zip(THREE_FILES, map(len, columns), strict=True))
    short = min(sizes, key=lambda name: sizes[name])
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name} {size}" for name, size in sizes.items())
        what = f"the three files differ in their number of lines: {counts}"
        raise problem(folder / short, sizes[short] + 1, what)


_ANNOTATION = re.compile(r"\[\s*([^\s\[\]:]+)\s*:\s*([^\[\]]*?)\s*\]")


def nlu_eval(path: Path, quoting: Quoting = "auto") -> Iterator[Record]:
    """Read rows of NLU-Evaluation-Data, with columns `scenario`, `intent` and `answer_annotation`.

    Scenario and intent together are the intent; `[type : words]` in the annotation marks a slot.
    """
    header, rows = read_csv(path, read_text(path), ";", quoted=quoting != "plain")
    needed = ("scenario", "intent", "answer_annotation")
    if missing := [name for name in needed if name not in header]:
        raise problem(path, 1, f"the header lacks {', '.join(missing)}; needed, with ; between: {', '.join(needed)}")
    who = next((name for name in header if name.strip().lower() in NAMES["user"]), None)
    unread = tuple(name for name in header if name not in (*needed, who))
    for line, row in rows:
        scenario, intent = row["scenario"].strip(), row["intent"].strip()
        if not scenario or not intent:
            raise problem(path, line, "the row has no scenario or no intent")
        tokens, tags = _annotated(row["answer_annotation"], path, line)
        user = row[who] if who is not None else None
        yield checked(tokens, tags, f"{scenario}_{intent}", path, line, user=user, unread=unread)


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


def jsonl(path: Path) -> Iterator[Record]:
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
        row = _object(text, path, line)
        needed = needed or ("tokens", *([key for key in ("tags", "intent") if key in row] or ("tags", "intent")))
        for key in ("tokens", "tags", "intent"):
            if key in needed and key not in row:
                raise problem(path, line, f"the key {key} is missing; needed: {', '.join(needed)}")
            if key in row and key not in needed:
                raise problem(path, line, f"the key {key} is new here; needed: {', '.join(needed)}, as above")
        for key in (key for key in ("tokens", "tags") if key in row):
            _check_words(key, row[key], path, line)
        _check_intent(row.get("intent", ""), path, line)
        intent = row["intent"].strip() if "intent" in row else None
        who = next((key for name in NAMES["user"] for key in row if key.lower() == name), "user")
        unread = tuple(key for key in row if key not in ("tokens", "tags", "intent", who))
        yield checked(row["tokens"], row.get("tags"), intent, path, line, user=row.get(who), unread=unread)


def _check_words(key: str, words: Any, path: Path, line: int) -> None:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise problem(path, line, f"{key} must be a list of strings")
    if bad := [word for word in words if not word or _NOT_IN_A_WORD.search(word)]:
        raise problem(path, line, f"{key} holds {bad[0]!r}; needed: one word per string, without blanks")


def _check_intent(intent: Any, path: Path, line: int) -> None:
    if not isinstance(intent, str) or SURROGATE.search(intent):
        raise problem(path, line, "intent must be a string")


def _object(text: str, path: Path, line: int) -> dict[str, Any]:
    """Return the object in a line of JSON; of MASSIVE as one of ours."""
    try:
        row = json.loads(text, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise problem(path, line, f"not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:  # nested deep, a key twice, a number of thousands of digits
        too_long = str(error).startswith("Exceeds the limit")
        why = "a number of thousands of digits" if too_long else one_line(error)
        raise problem(path, line, f"not an utterance: {why}") from None
    if not isinstance(row, dict):
        raise problem(path, line, "not an object; needed: the keys tokens, tags, intent")
    if "tokens" not in row and isinstance(row.get("annot_utt"), str):
        return _massive(row, path, line)
    if "tokens" not in row and any(name in row for name in (*NAMES["text"], "utt")):
        what = "the key tokens is missing, a list of words; a text as one string is read from CSV and Parquet"
        raise problem(path, line, f"{what}; needed: tokens, and tags or intent")
    return row


def _massive(row: dict[str, Any], path: Path, line: int) -> dict[str, Any]:
    """Return a line of MASSIVE as one of ours: words and slots from the annotation, the worker as the user.

    {"id": "0", "partition": "train", "intent": "play", "utt": "put abba on", "annot_utt": "put [artist : abba] on",
     "worker_id": "7"}
    """
    tokens, tags = _annotated(row["annot_utt"], path, line)
    user = {"user": row["worker_id"]} if "worker_id" in row else {}
    others = {key: value for key, value in row.items() if key not in ("annot_utt", "worker_id")}
    return {"tokens": tokens, "tags": tags, **user, **others}


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object of these keys and values; Python's own reader would keep the last value of a key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice} occurs twice; allowed: once")
    return found


_COMMENT = re.compile(r"#\s*(intent|user)\s*[:=]\s*(.*?)\s*$", re.IGNORECASE)
_TAG = re.compile(r"O|[BI]-\S+")
_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(.*)")
_RANGE = re.compile(r"\d+[-.]\d+")
_MOST_COLUMNS = 100
_NEW_DOCUMENT = "-DOCSTART-"  # a line of CoNLL-2003 that is no token


def conll(path: Path, columns: ColumnsSpec) -> Iterator[Record]:
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
    noted: dict[str, str] = {}  # the intent and the user of this block
    first = 0
    unread: tuple[str, ...] = ()
    lines = read_lines(path)
    word_at, tag_at, names = _places(lines[0], columns, path)
    if lines[0].startswith('{"'):  # other messages would quote its words and its user
        raise problem(path, 1, "JSON; needed: a token and its tag, or corpus.format = jsonl (data check: --format)")
    for line, text in enumerate([*lines, ""], start=1):
        cells = text.split("\t") if names and "\t" in text.strip() else split_blanks(text)
        if not tokens and (comment := _COMMENT.match(text)):
            kind = comment[1].lower()
            if noted.get(kind) or (kind == "user" and kind in noted):
                raise problem(path, line, f"a second {kind} before any token; the comments begin on line {first}")
            first = first if noted else line
            noted[kind] = comment[2]
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
            word = cells[word_at].strip()
            if not word or " " in word:
                raise problem(path, line, f"{word!r} is no token; needed: one word, without blanks")
            tokens.append(word)
            tags.append(cells[tag_at].strip())
        elif tokens:
            user, intent = noted.get("user"), noted.get("intent") or None
            yield checked(tokens, tags, intent, path, first, a_tag_a_line=True, user=user, unread=unread)
            tokens, tags, noted = [], [], {}
        elif noted:
            what = f"the intent {noted['intent']}" if noted.get("intent") else "the comments before it"
            raise problem(path, first, f"empty utterance: no tokens after {what}")


def _places(head: str, columns: ColumnsSpec, path: Path) -> tuple[int, int, list[str]]:
    """Return the index of the tokens' column, that of the tags', and the names of all columns, if either is chosen.

    Args:
        head: the first line of a CoNLL file, which may name the columns.
    """
    if columns.intent is not None or columns.user is not None:
        raise problem(path, None, "corpus.columns: intent and user of CoNLL are in comments; allowed: text and tags")
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
    if found and not names:
        names = [f"column {i}" for i in range(1, _MOST_COLUMNS + 1)]
    return found.get("text", 0), found.get("tags", -1), names


def _is_comment(text: str, columns: list[str]) -> bool:
    """Return True if a line before the first token of a block is a comment."""
    word_and_tag = len(columns) > 1 and _TAG.fullmatch(columns[-1]) and (columns[0] != "#" or len(columns) == 2)
    return text.startswith("#") and not word_and_tag
