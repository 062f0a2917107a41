"""Columns are named and never guessed by their place; a format of another program is refused by its name."""

from __future__ import annotations

import bz2
import gzip
import io
import re
import zipfile
from pathlib import Path

import pytest

from edp.spec import UserError
from trainables.config import ColumnsSpec
from trainables.corpora import Utterance, read_corpus
from trainables.corpora.formats import read_records

NUMBERED = """# global.columns = ID FORM UPOS NER
# text = x
1\tto\tX\tO
2-3\tlaspaz\t_\t_
2\tlas\tX\tB-city
3\tpaz\tX\tI-city
"""


def test_columns_of_conll_are_those_of_its_header_or_of_the_setting(tmp_path: Path) -> None:
    wanted = [Utterance(("to", "las", "paz"), ("O", "B-city", "I-city"), "")]
    path = tmp_path / "a.conll"
    path.write_text(NUMBERED)
    assert read_corpus(path, "auto") == wanted
    assert read_records(path, "auto")[0].unread == ("ID", "UPOS")
    path.write_text(NUMBERED.replace("\tO\n", "\tO\tB-x\n").partition("\n")[2])
    columns = ColumnsSpec.model_validate({"text": 2, "tags": 4})
    assert read_corpus(path, "auto", columns) == wanted
    assert read_records(path, "auto", columns)[0].unread == ("column 1", "column 3", "column 5")


@pytest.mark.parametrize(
    ("content", "columns", "says"),
    [
        (
            "1 to O\n2 rome B-x\n\n1 a O\n",
            None,
            r"line 1: all utterances of the file are numbers; allowed: corpus\.col",
        ),
        (
            "bc/1 0 to O\nbc/1 1 a O\nbc/1 2 b O\n" * 2 + "\nbc/2 0 to O\nbc/2 1 a O\nbc/2 2 b O\n",
            None,
            "again and again",
        ),
        (
            "# global.columns = ID FORM UPOS\n1 a X\n",
            None,
            "columns.tags = null: no such column; allowed: one of ID, FO",
        ),
        (
            "# global.columns = ID FORM NER\n1 a O\n",
            {"tags": "SLOT"},
            "tags = SLOT: no such column; allowed: one of ID",
        ),
        ("1 to O\n", {"text": 0}, "corpus.columns.text = 0: no such column; allowed: a number from 1 to 100"),
        ("1 to O\n", {"text": "2", "tags": 4}, "line 1: '1 to O' is 3 columns; needed: columns 1 to 4"),
        ("1\tto rome\tO\n", {"text": 2}, "line 1: 'to rome' is no token; needed: one word, without blanks"),
        ("1 to O\n", {"user": "2"}, "intent and user of CoNLL are in comments; allowed: text and tags"),
    ],
)
def test_columns_of_conll_are_never_guessed(
    content: str, columns: dict[str, object] | None, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.conll"
    path.write_text(content)
    with pytest.raises(UserError, match=says):
        read_corpus(path, "auto", ColumnsSpec.model_validate(columns) if columns else None)


def test_a_column_of_counts_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("tokens,text,intent\n2,to rome,go\n1,bye,end\n")
    with pytest.raises(
        UserError, match=r"a\.csv, line 2: all utterances of the file are numbers; allowed: .*columns\.t"
    ):
        read_corpus(path, "auto")
    assert read_corpus(path, "auto", ColumnsSpec(text="text"))[0].tokens == ("to", "rome")


def workbook() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return packed.getvalue()


FOREIGN: dict[str, tuple[bytes, str]] = {
    "mine.xlsx": (workbook(), "a workbook of Excel; allowed: a table in CSV or Parquet"),
    "mine.csv": (workbook(), "a workbook of Excel"),
    "mine.tsv": (b"\xff\xfet\0e\0", "text in UTF-16; allowed: the file saved as UTF-8"),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a workbook of Excel"),
    "mine.avro": (b"Obj\x01\x04", "a table of another kind; allowed: a table in CSV or Parquet"),
    "mine.parquet": (b"ORC\n\x0b", "a table of another kind"),
    "mine.arrow": (b"ARROW1\0\0", "an Arrow file (Feather), not a stream"),
    "mine.db": (b"SQLite format 3\0", "a table of another kind"),
    "mine.pkl": (b"\x80\x04\x95", "a pickle, which may run code when it is read"),
    "mine.conll": (gzip.compress(b"a O"), "packed with gzip; allowed: the unpacked file, or JSON lines"),
    "mine.csv.bz2": (bz2.compress(b"a,b"), "packed; allowed: the unpacked files"),
    "mine.xml": (b"<?xml version='1.0'?>", "XML or HTML"),
    "list.jsonl": (b'[\n {"tokens": ["a"]}]', "one list of JSON; allowed: an object per line, by jq -c '.[]'"),
    "list.json": (b'[{"tokens": ["a"]}]', "one list of JSON"),
    "en-US.json": (b'{"interactionModel": {}}', "an interaction model of Alexa; allowed: corpus.schema"),
    "nlu.json": (b'{"rasa_nlu_data": {}}', "training data of Rasa 1; allowed: nlu.yml, by rasa data convert nlu"),
    "data_full.json": (b'{"oos_val": []}', "CLINC150 as published; allowed: edp-sweep data fetch clinc150"),
    "doccano.jsonl": (
        b'{"text": "to rome", "label": [[3, 7, "city"]]}',
        "an export with offsets, as of doccano",
    ),
    "prodigy.jsonl": (b'{"text": "to rome", "spans": [{"start": 3}]}', "an export with offsets"),
    "studio.json": (b'[{"from_name": "label"}]', "an export with offsets"),
}


@pytest.mark.parametrize("in_folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_format_that_is_known_by_name_is_refused_with_it(name: str, in_folder: bool, tmp_path: Path) -> None:
    content, says = FOREIGN[name]
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / ".hidden").write_text("x")
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"{folder / name}: is {says}")):
        read_corpus(folder if in_folder else folder / name, "auto")
