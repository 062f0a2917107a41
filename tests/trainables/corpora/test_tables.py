"""Tables (CSV, Parquet, data sets): columns are found or said, cells are read, and what is broken is one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from edp.spec import UserError
from tests.support import writers
from tests.support.writers import AWKWARD
from trainables.config import ColumnsSpec, CorpusSpec
from trainables.corpora import Utterance, corpus_digest, read_corpus

BROKEN: dict[str, tuple[str, dict[str, bytes | str], str]] = {
    "a table without text": (
        "csv",
        {"c.csv": "a,intent\nx,y\n"},
        "c.csv: no column of text; it has 'a', 'intent'; allowed: corpus",
    ),
    "a table without a header, whose first line may name who said it": (
        "csv",
        {"c.csv": "good morning,greeting,Erika Mustermann\nbye,leave,Max Mustermann\n"},
        "c.csv: no column of text; none of the 3 names in its first line is known: is that a header?; allowed: corpus",
    ),
    "a table without labels": (
        "csv",
        {"c.csv": "text,id\nx,y\n"},
        "c.csv: no column of intent or tags; it has 'text', 'id'",
    ),
    "a column twice": ("csv", {"c.csv": "text,intent,intent\nx,y,z\n"}, "c.csv: the column 'intent' occurs twice"),
    "a short row of a table": (
        "csv",
        {"c.csv": "text,intent\nx,y\nx\n"},
        "c.csv, line 3: the row has not the 2 columns",
    ),
    "no intent in a row": (
        "auto",
        {"c.csv": "text;intent\nx;y\nx;\n"},
        "c.csv, line 3: column 'intent' holds ''; allowed: an intent in every row",
    ),
    "BIO in a row": ("csv", {"c.tsv": "text\ttags\nx y\tO I-x\n"}, "c.tsv, line 2: tag 2 is I-x after O"),
    "too few tags in a row": ("csv", {"c.csv": "text,tags\nx y,O\n"}, "c.csv, line 2: 1 tags for 2 tokens"),
    "no text in a row": ("csv", {"c.csv": "text,intent\n ,i\n"}, "c.csv, line 2: empty utterance"),
    "a list as text": (
        "csv",
        {"c.csv": "tokens,intent\n\"['play', 'it']\",i\n"},
        "c.csv, line 2: column 'tokens' holds \"['play', 'it']\", a list that was written as text; allowed: words with",
    ),
    "a NUL in a row": ("csv", {"c.csv": "text,intent\nx,y\na\0b,y\n"}, "c.csv, line 3: a token has a NUL character"),
    "carriage returns alone": (
        "csv",
        {"c.csv": "text,intent\rx,y\r"},
        "c.csv, line 1: not a row of CSV: a line ends with a carriage return alone; save it with line feeds",
    ),
    "no Parquet": ("parquet", {"c.parquet": "x"}, "c.parquet: is neither Parquet nor an Arrow stream: "),
    "half a Parquet": (
        "parquet",
        {"c.parquet": "PAR1 and more"},
        "c.parquet: is neither Parquet nor an Arrow stream: ",
    ),
    "a data set without its state": ("datasets", {"state.json": "{}"}, "state.json: is not a data set's state"),
    "a data set without a file": (
        "auto",
        {"state.json": '{"_data_files": [{"filename": "a.arrow"}]}'},
        "a.arrow: is neither Parquet nor an Arrow stream: ",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_table_ends_in_one_line_that_names_file_row_and_problem(fault: str, tmp_path: Path) -> None:
    format, files, expected = BROKEN[fault]
    said = writers.refusal(files, format, tmp_path)
    assert f"{tmp_path}/{expected}" in said
    assert "\n" not in said


CELLS: dict[str, tuple[str, list[object], str]] = {
    "a number without a name": ("tags", [[7], [8]], "row 1: column 'tags' holds 7; allowed: a string"),
    "a label below 0": ("label", ["a", None], "row 2: column 'label' holds nothing; allowed: a string"),
    "half a label": ("label", [0.5, 1.5], "row 1: column 'label' holds 0.5; allowed: a string or a whole number"),
    "no text": (
        "tokens",
        [None, ["a"]],
        "row 1: column 'tokens' holds nothing; allowed: words with blanks between, or",
    ),
    "two words in one": (
        "tokens",
        [["a"], ["a b"]],
        "row 2: column 'tokens' holds 'a b'; allowed: one word per string",
    ),
}


@pytest.mark.parametrize("fault", CELLS)
def test_a_cell_that_cannot_be_read_is_named_by_file_row_and_column(fault: str, tmp_path: Path) -> None:
    column, cells, expected = CELLS[fault]
    good: dict[str, list[object]] = {"tokens": [["a"], ["b"]], "tags": [["O"], ["O"]], "label": ["i", "j"]}
    pyarrow.parquet.write_table(pyarrow.table(good | {column: cells}), tmp_path / "c.parquet")
    with pytest.raises(UserError) as caught:
        read_corpus(tmp_path, "auto")
    assert str(caught.value).startswith(f"{tmp_path / 'c.parquet'}, {expected}")


def test_a_number_that_its_column_has_no_name_for_is_refused(tmp_path: Path) -> None:
    table = writers.arrow_table(AWKWARD)
    unlabelled = table.set_column(2, "label", pyarrow.array([-1] * len(AWKWARD)))
    pyarrow.parquet.write_table(unlabelled, tmp_path / "c.parquet")
    with pytest.raises(
        UserError, match=r"row 1: column 'label' holds -1; allowed: a string, or 0 to 3, which have names"
    ):
        read_corpus(tmp_path, "auto")


def test_columns_of_any_name_are_read_where_the_spec_says_which(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("said,what,text,who\nring bob,call,x,u1\nstop,end,y,u2\n")
    spec = CorpusSpec(name="mine", path=str(tmp_path), columns=ColumnsSpec(text="said", intent="what", user="who"))
    assert read_corpus(tmp_path, "auto", spec.columns) == [
        Utterance(("ring", "bob"), ("O", "O"), "call", "u1"),
        Utterance(("stop",), ("O",), "end", "u2"),
    ]
    assert corpus_digest(spec) != corpus_digest(spec.model_copy(update={"columns": ColumnsSpec(intent="what")}))
    with pytest.raises(UserError, match=r"corpus\.columns\.tags = bio: there is no such column; it has 'said', 'what'"):
        read_corpus(tmp_path, "csv", ColumnsSpec(tags="bio"))
    with pytest.raises(UserError, match=r"corpus\.columns\.tags = what: that is the column of intent; it has 'said'"):
        read_corpus(tmp_path, "csv", ColumnsSpec(text="said", intent="what", tags="what"))
    with pytest.raises(UserError, match=r"corpus\.columns: format jsonl has none; allowed with conll, csv, parquet"):
        read_corpus(writers.jsonl(AWKWARD, tmp_path / "other"), "jsonl", ColumnsSpec(text="said"))
    assert CorpusSpec.model_validate(spec.model_dump()) == spec


def test_text_that_is_not_utf8_and_features_that_are_noted_otherwise_are_no_fault_of_the_program(
    tmp_path: Path,
) -> None:
    bad = pyarrow.Array.from_buffers(pyarrow.string(), 1, pyarrow.array([b"caf\xe9"], pyarrow.binary()).buffers())
    path = tmp_path / "c.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": bad, "intent": ["i"]}), path)
    with pytest.raises(UserError, match=r"c\.parquet: holds text that is not UTF-8"):
        read_corpus(path, "parquet")
    for noted in (
        b"{}",
        b'{"info": {"features": null}}',
        b"[]",
        b'{"info": {"features": {"text": null}}}',
        b"{",
        b'{"info": []}',
        b'{"info": {"features": [1]}}',
    ):
        table = pyarrow.table({"text": ["say it"], "intent": ["i"]}).replace_schema_metadata({"huggingface": noted})
        pyarrow.parquet.write_table(table, path)
        assert read_corpus(path, "parquet")[0].intent == "i"


ROWS = [("turn it up", "louder"), ("play it again", "play"), ("stop", "end"), ("skip this", "next"), ("go on", "play")]
"""Utterances and intents; with a quote before the second and in the last one, its rows can be one cell."""


def _with_quotes(path: Path, separator: str, before: str = "", header: str | None = None) -> Path:
    """Write a table in which two quotes stand, at the begin of the second and the end of the last utterance."""
    lines = [header or separator.join(["notes", "text", "intent"])]
    for number, (text, intent) in enumerate(ROWS):
        said = {1: f'"{text}', 4: f'{text}"'}.get(number, text)
        lines.append(separator.join([before, said, intent]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "separator", "header", "format"),
    [
        ("c.csv", ",", "notes,text,intent", "csv"),
        ("c.csv", ";", "notes;text;intent", "csv"),
        ("c.csv", ";", "scenario;answer_annotation;intent", "nlu_eval"),
        ("c.tsv", "\t", '"notes"\ttext\tintent', "csv"),
    ],
)
def test_a_quote_that_is_never_closed_joins_no_rows(
    name: str, separator: str, header: str, format: str, ending: str, tmp_path: Path
) -> None:
    path = _with_quotes(tmp_path / name, separator, "x", header)
    path.write_bytes(path.read_bytes().replace(b"\n", ending.encode()))
    with pytest.raises(UserError, match=r"line 3: a quoted cell goes on for 3 more lines; is a quote never closed\?"):
        read_corpus(path, "auto")
    if header.startswith('"'):
        return  # without quotes it has no column that is known
    found = read_corpus(path, format, None, "plain")
    assert [" ".join(one.tokens).replace('"', "") for one in found] == [text for text, _ in ROWS]
    assert found[1].tokens[0] == '"play'


def test_line_breaks_are_refused_in_a_header_in_columns_that_are_not_read_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    for text, says in (
        ('text,"int\nent"\nx,y\n', "line 1: a quoted cell goes on for 1 more lines"),
        ('text,intent,notes\na,b,c\n\nx,y,"z\nz"\n', "line 4: a quoted cell goes on for 1 more lines"),
        ('text,intent\nx,y\n"a,b\nc,d\n', "line 3: not a row of CSV: a quote is never closed"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=says):
            read_corpus(path, "auto")


def test_tabs_mean_that_nothing_is_quoted_unless_the_header_is(tmp_path: Path) -> None:
    path = tmp_path / "c.tsv"
    path.write_text('text\tintent\n"hey jude" is what i want\tplay\n"hey jude"\tplay\nsay "stop\tend\n')
    assert [one.tokens for one in read_corpus(path, "auto")] == [
        ('"hey', 'jude"', "is", "what", "i", "want"),
        ('"hey', 'jude"'),
        ("say", '"stop'),
    ]
    path.write_text('"text"\t"intent"\n"say ""stop"" now"\t"end"\n')
    assert read_corpus(path, "auto")[0].tokens == ("say", '"stop"', "now")
    path.write_text('text\tintent\ngo on\tplay\n"say ""stop"" now"\tend\n')
    with pytest.raises(
        UserError, match=r"line 3: column 'text' holds a cell that is quoted as in CSV; allowed: corpus"
    ):
        read_corpus(path, "auto")
    assert read_corpus(path, "auto", None, "quoted")[1].tokens == ("say", '"stop"', "now")
    assert read_corpus(path, "auto", None, "plain")[1].tokens == ('"say', '""stop""', 'now"')
    with pytest.raises(UserError, match=r"corpus\.quoting = plain: format jsonl has none; allowed with nlu_eval, csv"):
        read_corpus(writers.jsonl(AWKWARD, tmp_path / "other"), "jsonl", None, "plain")
