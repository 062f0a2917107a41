"""`edp-sweep data text` shows the public text of a schema's samples, and writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from trainables.corpora import read_corpus
from trainables.corpora.schema import find_schema
from trainables.corpora.schema_text import make_text

SCHEMA = """
intents:
  book: {samples: ["a flight to {city}", "fly [new york](city) on {day}"]}
  bye: {samples: [bye bye]}
  stop: {}
slots: {city: {values: cities}, day: {values: [monday, friday, sunday]}, other: {}}
catalogues: {cities: [berlin, paris, los angeles]}
before: [please, can you]
"""


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(SCHEMA)
    return "s.yaml"


def test_it_shows_counts_what_has_no_text_and_utterances_with_their_slots(schema: str, command: Command) -> None:
    made = make_text(find_schema(schema, "x").schema.text)
    books = sum(one.intent == "book" for one in made)
    code, out, err = command("data", "text", schema)
    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    assert first == f"3 samples, 7 values, {len(made)} utterances, {len(made) - books} to {books} an intent"
    assert lines[:2] == ["intents without text: stop", "slots without text: other"]
    assert len(lines[2:]) == 8
    assert any(line.startswith("  book: ") and "](city)" in line for line in lines)


def test_what_it_writes_is_a_corpus_that_it_never_overwrites(schema: str, command: Command) -> None:
    code, out, err = command("data", "text", schema, "--output", "t.jsonl", "--seed", "3", "--utterances", "9")
    assert code == 0, err
    assert out.endswith("wrote 9 utterances to t.jsonl\n")
    assert read_corpus(Path("t.jsonl"), "auto") == make_text(find_schema(schema, "x").schema.text, most=9, seed=3)
    before = Path("t.jsonl").read_bytes()
    code, out, err = command("data", "text", schema, "--output", "t.jsonl")
    assert (code, out) == (2, "")
    assert "--output = 't.jsonl': it exists; allowed: a new file" in err
    assert Path("t.jsonl").read_bytes() == before
    code, out, err = command("data", "text", schema, "--output", "-", "--seed", "3", "--utterances", "9")
    assert (code, out) == (0, before.decode())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("no.yaml", "schema = no.yaml: there is no such file; allowed: a YAML file, atis"),
        ("empty.yaml", "schema = empty.yaml: it has no samples to make text of; allowed: one with samples"),
        ("bad.yaml", "slots.city: a sample has it, and it has no value; allowed: values, or a catalogue's name"),
        ("s.yaml --utterances 0", "utterances"),
        ("s.yaml --seed -1", "seed"),
        ("s.yaml --output no/x.jsonl", "--output"),
    ],
)
def test_a_mistake_is_one_line(words: str, says: str, schema: str, command: Command) -> None:
    Path("empty.yaml").write_text("intents: [a, b]")
    Path("bad.yaml").write_text("slots: [city]\nsamples: ['to {city}']")
    code, out, err = command("data", "text", *words.split())
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
