"""A reader gives back what was written, takes what is untidy, and refuses what is broken in one line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from edp.spec import UserError
from tests.support import writers
from tests.support.permissions import unreadable
from tests.support.writers import AWKWARD, CORPUS
from trainables.config import CorpusSpec
from trainables.corpora import Utterance, check_corpus, corpus_digest, read_corpus
from trainables.corpora.formats import detect_format, read_records


@pytest.mark.parametrize("explicit", [True, False], ids=["explicit", "auto"])
@pytest.mark.parametrize("writer", [*writers.WRITERS, *writers.BINARY])
def test_a_reader_gives_back_what_was_written(writer: str, explicit: bool, tmp_path: Path) -> None:
    format, write = (writers.WRITERS | writers.BINARY)[writer]
    path = write(CORPUS, tmp_path / "corpus")
    assert read_corpus(path, format if explicit else "auto") == CORPUS


@pytest.mark.parametrize("writer", writers.WRITERS)
def test_blanks_at_line_ends_and_carriage_returns_and_a_byte_order_mark_change_nothing(
    writer: str, tmp_path: Path
) -> None:
    format, write = writers.WRITERS[writer]
    path = write(CORPUS, tmp_path / "corpus")
    for file in [path] if path.is_file() else [child for child in path.rglob("*") if child.is_file()]:
        text = file.read_bytes()
        ending = b"\r\n" if file.suffix == ".csv" else b"  \r\n"
        file.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", ending) + b"\r\n\r\n")
    assert read_corpus(path, format) == CORPUS


def test_a_single_file_needs_no_suffix_when_its_format_is_said(tmp_path: Path) -> None:
    path = writers.jsonl(CORPUS, tmp_path)
    renamed = path.rename(tmp_path / "corpus.data")
    assert read_corpus(renamed, "jsonl") == CORPUS
    with pytest.raises(UserError, match=r"set corpus\.format"):
        read_corpus(renamed, "auto")


def test_lines_of_json_may_be_packed(tmp_path: Path) -> None:
    plain = writers.jsonl(CORPUS, tmp_path / "plain")
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_corpus(packed, "auto") == CORPUS
    assert corpus_digest(CorpusSpec(name="x", path=str(packed))) == corpus_digest(CorpusSpec(name="x", path=str(plain)))


def test_punctuation_beside_an_annotation_is_a_token(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("scenario;intent;answer_annotation\nemail;send;to [person : robert], now\n", encoding="utf-8")
    assert read_corpus(file, "auto") == [
        Utterance(("to", "robert", ",", "now"), ("O", "B-person", "O", "O"), "email_send")
    ]


OK_JSON = '{"tokens": ["a"], "tags": ["O"], "intent": "i"}\n'
CSV = "scenario;intent;answer_annotation\n"


def row(**changed: object) -> str:
    """Return a line of JSON that is right but for what is changed."""
    return json.dumps({"tokens": ["a"], "tags": ["O"], "intent": "i"} | changed)


# Of each format: the fault, what the file holds, what is said of it.
THREE_FILES = {  # seq.in, seq.out and label
    "too few tags": ("a b\nc d\n", "O O\nO\n", "i\ni\n", "seq.out, line 2: 1 tags for 2 tokens"),
    "I after O": ("a b\n", "O I-x\n", "i\n", "seq.out, line 1: tag 2 is I-x after O; allowed: I-x after B-x or I-x"),
    "I after another B": ("a b\n", "B-y I-x\n", "i\n", "seq.out, line 1: tag 2 is I-x after B-y"),
    "a tag that is not BIO": ("a\n", "city\n", "i\n", "seq.out, line 1: tag 1 is 'city'"),
    "an empty line": ("a\n\nb\n", "O\n\nO\n", "i\ni\ni\n", "seq.in, line 2: empty utterance"),
    "no intent": ("a\nb\nc\n", "O\nO\nO\n", "i\n \ni\n", "label, line 2: the utterance has no intent"),
    "more lines": ("a\nb\n", "O\nO\n", "i\n", "label, line 2: the three files differ in their number of lines"),
    "an empty file": ("", "", "", "seq.in: the file is empty"),
    "not UTF-8": (b"a\n\xff\n", "O\nO\n", "i\ni\n", "seq.in, line 2: byte 0xff is not UTF-8"),
}
JSON_LINES = {
    "broken JSON": (OK_JSON + "{\n", "c.jsonl, line 2: not JSON"),
    "a number of 5,000 digits": (f'{{"user": {"9" * 5000}}}\n', "c.jsonl, line 1: not"),
    "JSON nested deep": ("[" * 200_000 + "\n", "c.jsonl, line 1: not"),
    "not an object": ("\n[1]\n", "c.jsonl, line 2: not an object"),
    "a missing key": (OK_JSON + '{"tokens": ["a"], "intent": "i"}', "c.jsonl, line 2: the key tags is missing"),
    "a key twice": (
        OK_JSON[:-2] + ', "intent": "j"}',
        "line 1: not an utterance: the key intent occurs twice",
    ),
    "tokens as text": (row(tokens="a"), "c.jsonl, line 1: tokens must be a list of strings"),
    "a token of two words": (row(tokens=["new york"]), "c.jsonl, line 1: tokens holds 'new york'"),
    "half a character": (row(tokens=["\ud800"]), "c.jsonl, line 1: tokens holds"),
    "an intent that is null": (row(intent=None), "c.jsonl, line 1: intent must be a string"),
    "no tokens": (row(tokens=[], tags=[]), "c.jsonl, line 1: empty utterance"),
    "a text as one string": (
        '{"text": "play it"}',
        "the key tokens is missing, a list of words; a text as one string is",
    ),
    "intents in some lines": (
        '{"tokens": ["a"], "tags": ["O"]}\n' + OK_JSON,
        "c.jsonl, line 2: the key intent is new here",
    ),
    "neither tags nor intents": ('{"tokens": ["a"]}\n', "c.jsonl, line 1: the key tags is missing"),
}
CONLL = {
    "a token without tag": ("# intent: i\na O\nb\n", "c.conll, line 3: 'b' is one column"),
    "JSON that is read as words and tags": (OK_JSON, "c.conll, line 1: JSON; needed: a token and"),
    "a block without intent": ("# intent: i\na O\n\nb O\nc O\n", "c.conll, line 4: the utterance has no intent"),
    "an intent without tokens": ("# intent: i\n\n# intent: j\na O\n", "c.conll, line 1: empty utterance"),
    "two intents": ("# intent: i\n# intent: j\na O\n", "c.conll, line 2: a second intent"),
    "BIO in a block": ("# intent: i\na O\nb I-x\n", "c.conll, line 3: tag 2 is I-x after O"),
}
NLU_EVAL = {
    "no header": ("a;b;c\n", "c.csv, line 1: the header lacks scenario"),
    "a bracket left open": (CSV + "a;b;[x : y\n", "c.csv, line 2: a bracket that is not [type : words]"),
    "a slot without words": (CSV + "a;b;go [x : ]\n", "c.csv, line 2: the slot [x : ]"),
    "a short row": (CSV + "a;b;c\na;b\n", "c.csv, line 3: the row has not the 3 columns"),
    "a row without intent": (CSV + "a;;c\n", "c.csv, line 2: the row has no scenario"),
    "a quote left open": (CSV + 'a;b;"c\n', "c.csv, line 2: not a row of CSV"),
}
BROKEN: dict[str, tuple[str, dict[str, bytes | str], str]] = {
    **{
        k: ("three_file", dict(zip(("seq.in", "seq.out", "label"), of, strict=True)), said)
        for k, (*of, said) in THREE_FILES.items()
    },
    **{k: ("jsonl", {"c.jsonl": text}, said) for k, (text, said) in JSON_LINES.items()},
    **{k: ("conll", {"c.conll": text}, said) for k, (text, said) in CONLL.items()},
    **{k: ("nlu_eval", {"c.csv": text}, said) for k, (text, said) in NLU_EVAL.items()},
    "a file of three missing": ("three_file", {"train/seq.in": "a\n", "train/label": "i\n"}, "train: seq.out missing"),
    "no folder of three": ("three_file", {"notes.md": "x"}, "no three_file corpus is there"),
    "tags in some files": (
        "jsonl",
        {"c.jsonl": '{"tokens": ["a"], "intent": "i"}\n', "d.jsonl": OK_JSON},
        "c.jsonl, line 1: the utterance has no tags, and 1 others have",
    ),
    "no gzip": ("jsonl", {"c.jsonl.gz": OK_JSON}, "c.jsonl.gz: cannot be unpacked: not a gzipped file"),
    "half a gzip": ("jsonl", {"c.jsonl.gz": gzip.compress(OK_JSON.encode())[:-9]}, "c.jsonl.gz: cannot be unpacked: "),
    "nothing known": ("auto", {"c.docx": "x"}, "no corpus of a known format is there"),
    "two formats": (
        "auto",
        {"c.jsonl": OK_JSON, "c.conll": "# intent: i\na O\n"},
        "holds corpora of several formats (jsonl, ",
    ),
    "an unknown format": ("xml", {"c.xml": "x"}, "corpus.format = xml; allowed: auto, three_file"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_corpus_ends_in_one_line_that_names_file_line_and_problem(fault: str, tmp_path: Path) -> None:
    format, files, expected = BROKEN[fault]
    said = writers.refusal(files, format, tmp_path)
    assert expected in said
    assert "\n" not in said
    if format != "xml":
        assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("name", "content", "intents"),
    [
        ("c.jsonl", '{"tokens": ["go", "on"], "intent": "go"}\n{"tokens": ["stop"], "intent": "end"}\n', ["go", "end"]),
        ("c.jsonl", '{"tokens": ["go", "on"], "tags": ["O", "B-x"]}\n{"tokens": ["stop"], "tags": ["O"]}\n', ["", ""]),
        ("c.conll", "go O\non B-x\n\nstop O\n", ["", ""]),
        ("c.csv", "text,label\ngo on,go\nstop,end\n", ["go", "end"]),
        ("c.csv", '"text","slots"\ngo on,O B-x\nstop,O\n', ["", ""]),
    ],
)
def test_what_a_corpus_lacks_it_lacks_everywhere(name: str, content: str, intents: list[str], tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    tags = ("O", "B-x") if intents[0] == "" else ("O", "O")
    assert read_corpus(tmp_path, "auto") == [
        Utterance(("go", "on"), tags, intents[0]),
        Utterance(("stop",), ("O",), intents[1]),
    ]


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    writers.jsonl_folder(AWKWARD, tmp_path / "corpus")
    with unreadable(tmp_path), pytest.raises(UserError, match="cannot be read: Permission denied"):
        detect_format(tmp_path / "corpus")


def test_conll_has_words_that_begin_with_a_hash_documents_that_begin_and_comments_in_any_case(tmp_path: Path) -> None:
    file = tmp_path / "a.conll"
    file.write_text(
        "-DOCSTART- -X- -X- O\n\n"
        "#Apple\tB-product\nrocks\tO\n\n"
        "#hello O\n\n"
        "# O\n1 B-number\n\n"
        "-DOCSTART- -X- -X- O\n\n"
        "# text = #Apple rocks\n#no tag here\nplain O\n"
    )
    assert [(u.tokens, u.tags) for u in read_corpus(file, "auto")] == [
        (("#Apple", "rocks"), ("B-product", "O")),
        (("#hello",), ("O",)),
        (("#", "1"), ("O", "B-number")),
        (("plain",), ("O",)),
    ]
    file.write_text("# Intent: book\n# USER = u1\nnow O\n")
    assert read_corpus(file, "auto") == [Utterance(("now",), ("O",), "book", "u1")]


def test_hidden_folders_are_not_read_and_a_file_is_read_once(tmp_path: Path) -> None:
    writers.jsonl(CORPUS, tmp_path / "mine")
    hidden = tmp_path / "mine" / ".ipynb_checkpoints"
    writers.jsonl(CORPUS[:4], hidden)
    assert read_corpus(tmp_path / "mine", "auto") == CORPUS
    hidden.rename(tmp_path / "shown")
    (plain,) = (tmp_path / "shown").iterdir()
    (tmp_path / "shown" / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(UserError, match=r"jsonl\.gz: is the same as \S+\.jsonl; allowed: one of the two"):
        read_corpus(tmp_path / "shown", "auto")


MASSIVE = (
    '{"id": "0", "locale": "fr-FR", "partition": "train", "intent": "play_music", "utt": "mets abba en boucle", '
    '"annot_utt": "mets [artist_name : abba] [mode : en boucle]", "worker_id": "7"}\n'
    '{"id": "1", "locale": "fr-FR", "partition": "test", "intent": "stop", "utt": "stop", "annot_utt": "stop", '
    '"worker_id": "8"}\n'
)


def test_the_files_of_massive_are_read_with_slots_and_workers(tmp_path: Path) -> None:
    path = tmp_path / "fr-FR.jsonl"
    path.write_text(MASSIVE)
    assert read_corpus(path, "auto") == [
        Utterance(("mets", "abba", "en", "boucle"), ("O", "B-artist_name", "B-mode", "I-mode"), "play_music", "7"),
        Utterance(("stop",), ("O",), "stop", "8"),
    ]
    unread = [record.unread for record in read_records(path, "auto")]
    assert unread == [("id", "locale", "partition", "utt")] * 2
    path.write_text(MASSIVE.replace("en boucle]", "en boucle"))
    with pytest.raises(UserError, match=r"line 1: a bracket that is not \[type : words\]"):
        read_corpus(path, "auto")
    path.write_text('{"utt": "stop it", "intent": "stop"}\n')
    with pytest.raises(UserError, match="line 1: the key tokens is missing, a list of words; a text as one string"):
        read_corpus(path, "auto")


def test_the_tables_of_multiatis_are_read_with_slots(tmp_path: Path) -> None:
    path = tmp_path / "train_EN.tsv"
    path.write_text("id\tutterance\tslot_labels\tintent\n1\tto new york\tO B-city I-city\tflight\n")
    assert read_corpus(path, "auto") == [Utterance(("to", "new", "york"), ("O", "B-city", "I-city"), "flight")]
    assert read_records(path, "auto")[0].unread == ("id",)


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv", "c.conll", "c.parquet", "seq.in"])
def test_a_pointer_of_git_lfs_is_called_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n")
    for other in ("seq.out", "label") if name == "seq.in" else ():
        (tmp_path / other).write_text("O\n")
    says = re.escape(f"{path}: is a pointer of Git LFS, not the file itself; allowed: the file, by git lfs pull")
    with pytest.raises(UserError, match=says):
        read_corpus(tmp_path, "auto")


def test_utterances_that_contradict_each_other_and_columns_that_are_not_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    rows = [f"say {n},i{n % 2},t{n}" for n in range(40)]
    path.write_text(
        "\n".join(["text,intent,translation", *rows, "Say 3,i0,x", "Sáy 3,i0,x", "say 4,i0,x", "say 6,i1,y"])
    )
    found = check_corpus(CorpusSpec(name="mine", path=str(path)))
    assert (found.contradictions, found.contradiction) == (2, f"{path}, line 42")
    assert found.unread == ["translation"]
    path.write_text("\n".join(["text,intent", *(row.rpartition(",")[0] for row in rows)]))
    found = check_corpus(CorpusSpec(name="mine", path=str(path)))
    assert (found.contradictions, found.contradiction, found.unread) == (0, None, [])
