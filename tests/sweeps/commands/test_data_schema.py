"""`edp-sweep data schema` writes the labels of a corpus for a person to review, and `data check` counts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support import writers
from trainables.corpora import generate

CORPUS = generate("video", 300, seed=5)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return writers.jsonl(CORPUS, tmp_path)


def test_what_it_writes_is_a_schema_of_the_corpus_and_is_not_overwritten(mine: Path, command: Command) -> None:
    code, out, err = command("data", "schema", mine.name)
    assert (code, out) == (0, "wrote schema.yaml: review it, then set corpus.schema=schema.yaml\n"), err
    assert err.startswith("in fewer than 10 utterances: ")
    assert "REVIEW THIS FILE" in Path("schema.yaml").read_text()
    Path("schema.yaml").write_text(Path("schema.yaml").read_text().replace("  play_video: {}\n", ""))
    reviewed = Path("schema.yaml").read_text()
    code, _, err = command("data", "schema", mine.name)
    assert code == 2
    assert "--output = 'schema.yaml': it exists, and may have been reviewed; allowed: a new file" in err
    assert Path("schema.yaml").read_text() == reviewed

    code, out, err = command("data", "check", mine.name, "--schema", "schema.yaml", "--json")
    assert code == 0, err
    found = json.loads(out)
    counts = found["label_counts"]
    assert counts["schema"]
    assert counts["left_out"] + counts["unknown_valid"] + counts["unknown_test"] == sum(
        one.intent == "play_video" for one in CORPUS
    )
    code, out, err = command("data", "check", mine.name, "--schema", "schema.yaml")
    assert f"{counts['left_out']} training utterances are left out and 0 lose a slot" in out


def test_without_a_schema_the_labels_in_few_utterances_are_counted(mine: Path, command: Command) -> None:
    code, out, err = command("data", "check", mine.name)
    assert code == 0, err
    assert "labels: 50, read off this corpus and taken to be public; " in out
    assert "stand in fewer than 10 training utterances" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("check mine.jsonl --schema no.yaml", "corpus.schema = no.yaml: there is no such file; allowed: a YAML file, "),
        ("check mine.jsonl --schema mine.jsonl", "not YAML"),
        ("schema nothing", "corpus = 'nothing': no such corpus, file or folder"),
        ("schema mine.jsonl --output no/folder.yaml", "--output"),
        ("schema mine.jsonl --format xml", "format = 'xml'"),
    ],
)
def test_a_mistake_is_one_line(words: str, says: str, mine: Path, command: Command) -> None:
    mine.rename("mine.jsonl")
    code, out, err = command("data", *words.split())
    assert code == 2
    assert not out
    assert says in err
    assert err.count("\n") == 1
    assert not Path("schema.yaml").exists()
