"""`edp-sweep data schema` writes the labels of a corpus for a person to review, and `data check` counts them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support import writers
from trainables.corpora import generate
from trainables.corpora.schema import find_schema
from trainables.corpora.schema_text import make_text, marked
from trainables.corpora.splits import text_overlap

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


def test_the_holder_of_the_data_is_told_how_much_of_a_schemas_text_is_in_the_corpus(
    mine: Path, command: Command
) -> None:
    copied = [marked(one) for one in CORPUS if one.intent == "play_video"][:3]
    Path("s.yaml").write_text(
        json.dumps({"intents": {"play_video": {"samples": copied}, "other": {"samples": ["nothing of the kind"]}}})
    )
    tags = [tag[2:] for one in CORPUS for tag in one.tags if tag != "O"]
    whole = json.loads(Path("s.yaml").read_text()) | {"slots": sorted(set(tags))}
    Path("s.yaml").write_text(json.dumps(whole))
    code, out, err = command("data", "check", mine.name, "--schema", "s.yaml", "--json")
    assert code == 0, err
    found = json.loads(out)["schema_text"]
    text = make_text(find_schema("s.yaml", "x").schema.text)
    assert found == asdict(text_overlap(text, CORPUS))
    assert found["exact"] >= 3
    code, out, err = command("data", "check", mine.name, "--schema", "s.yaml")
    assert f"schema: its text has {found['text']:,} utterances, and this corpus {found['corpus']:,} distinct" in out
    assert f"{found['exact']:,} are in both word for word" in out
    assert "are private data: no ε covers them" in out
    # Without samples there is no text, and without a schema nothing to say.
    Path("s.yaml").write_text(json.dumps(whole | {"intents": ["play_video", "other"]}))
    for words in (("--schema", "s.yaml"), ()):
        code, out, _ = command("data", "check", mine.name, *words)
        assert "private data" not in out


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
