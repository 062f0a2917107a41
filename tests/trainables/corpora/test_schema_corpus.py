"""The text of a schema is a corpus like others: a proxy, public features, a vocabulary, or even the private corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edp.spec import UserError
from sweeps.config.loading import load_recipe
from tests.conftest import Command
from tests.support.tiny import spec
from tests.trainables.corpora.test_schema_imports import AGENT, ALEXA, RASA, folder_of, zip_of
from trainables.config import CorpusSpec
from trainables.corpora import corpus_digest, load_corpus, read_corpus
from trainables.corpora.schema import find_schema
from trainables.corpora.schema_text import make_text

SCHEMA = """
intents:
  book: {samples: ["a flight to {city}", "fly to [new york](city) on {day}", "book me a seat to {city} for {day}",
    "is there a plane to {city} on {day}", "i leave for {city} on {day}"]}
  bye: {samples: [bye bye, see you, good bye]}
slots: {city: {values: [berlin, paris, los angeles, rome]}, day: {values: [monday, friday, sunday]}}
before: [please, can you, ok]
after: [now, thanks]
"""


def of(path: Path, **others: Any) -> CorpusSpec:
    return CorpusSpec.model_validate({"path": str(path)} | others)


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(SCHEMA)
    return path


def test_its_utterances_are_the_text_of_the_schema(schema: Path) -> None:
    made = make_text(find_schema(str(schema), "x").schema.text)
    assert of(schema).name == "mine-text"
    assert read_corpus(schema, "auto") == made
    assert sorted(load_corpus(of(schema)).utterances) == sorted(made)
    sample = load_corpus(of(schema, utterances=20, seed=3)).utterances
    assert len(sample) == 20
    assert set(sample) < set(made)


def test_its_digest_is_of_the_text(schema: Path, tmp_path: Path) -> None:
    digest = corpus_digest(of(schema))
    other = tmp_path / "other" / "renamed.yml"
    other.parent.mkdir()
    other.write_text("# a remark\n" + SCHEMA.replace("slots: {", "slots: {unused: {description: none}, "))
    assert corpus_digest(of(other)) == corpus_digest(of(other, format="schema")) == digest
    changed = SCHEMA.replace("see you", "see you later"), SCHEMA.replace("rome", "bonn"), SCHEMA.replace("ok", "hi")
    for text in changed:
        other.write_text(text)
        assert corpus_digest(of(other)) != digest
    assert len({digest, *(corpus_digest(of(schema, **one)) for one in ({"utterances": 20}, {"seed": 1}))}) == 3


def test_the_files_of_other_tools_are_corpora_if_the_format_says_so(tmp_path: Path) -> None:
    alexa = tmp_path / "en-US.json"
    alexa.write_text(json.dumps(ALEXA))
    rasa = folder_of({"data/nlu.yml": RASA}, tmp_path / "rasa")
    for path in (alexa, rasa, rasa / "data" / "nlu.yml", zip_of(AGENT, tmp_path / "agent.zip")):
        found = read_corpus(path, "schema")
        assert found == make_text(find_schema(str(path), "x").schema.text)
        assert of(path, format="schema").name == f"{path.stem}-text"
    assert read_corpus(rasa / "data" / "nlu.yml", "auto")


@pytest.mark.parametrize(
    ("content", "others", "says"),
    [
        ("intents: [a, b]", {}, r"mine\.yaml: the schema has no samples to make text of; allowed: one with samples"),
        ("intents: {a: {samples: [b c]}, d: {}}", {}, "1 distinct utterances; allowed: at least 20"),
        ("corpus: {name: atis}", {}, r"mine\.yaml: corpus: unknown key; allowed: intents, slots"),
        (None, {"split": "published"}, "has no published split"),
        (None, {"utterances": 5000}, r"corpus\.utterances = 5000: mine-text has \d+; allowed: at most that many"),
        (None, {"columns": {"text": "a"}}, "format schema has none; allowed with conll, csv, parquet"),
        (None, {"path": "clinc150", "format": "schema"}, "the schema has no samples to make text of"),
        (None, {"path": "nothing", "format": "schema"}, r"corpus\.path = nothing: there is no such file"),
    ],
)
def test_text_that_is_no_corpus_is_one_line(
    content: str | None, others: dict[str, Any], says: str, schema: Path
) -> None:
    schema.write_text(content or SCHEMA)
    with pytest.raises(UserError, match=says) as error:
        load_corpus(CorpusSpec.model_validate({"path": str(schema)} | others))
    assert "\n" not in str(error.value)


PROXY = ["--set", "search.proxy.name=communication"]


@pytest.mark.parametrize(
    "words",
    [
        ["data", "check", "nlu.yml"],
        ["data", "check", "en-US.json", "--format", "schema"],
        ["data", "check", "agent.zip", "--format", "schema"],
        ["data", "schema", "nlu.yml", "--output", "-"],
        ["run", "health_private", "--set", "corpus.path=nlu.yml"],
        ["run", "health_private", "--set", "corpus.path=nlu.yml", "--set", "search.plan=proxy", *PROXY],
        ["epsilon", "health_private", "--set", "corpus.path=nlu.yml"],
        ["train", "c.yaml", "--set", "corpus.path=nlu.yml"],
    ],
    ids=" ".join,
)
def test_no_private_corpus_is_made_of_samples(
    words: list[str], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nlu.yml").write_text(RASA)
    Path("en-US.json").write_text(json.dumps(ALEXA))
    zip_of(AGENT, tmp_path / "agent.zip")
    Path("c.yaml").write_text(json.dumps(spec().model_dump(mode="json", exclude_unset=True)))
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    says = "it is a schema, and up to 40 utterances are made of a line, but ε is for one utterance; allowed:"
    assert says in " ".join(err.split())
    assert not Path("runs").exists()


def test_public_corpora_may_be_the_text(schema: Path) -> None:
    text = {"path": str(schema)}
    one = spec(shadow={"corpus": text})
    assert load_corpus(one.shadow.corpus, "shadow.corpus").train
    settings = [f"search.proxy.path={schema}", "shadow.corpus={name: text, path: clinc150, format: schema}"]
    _, recipe = load_recipe("atis_private", settings)
    assert recipe.search.proxy is not None
    assert (recipe.search.proxy.name, recipe.search.proxy.path) == ("mine-text", str(schema))
    assert recipe.shadow.corpus.path == "clinc150", "a name that comes along is no path"
