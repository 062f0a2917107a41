"""What developers have is read as a schema: Rasa's training data, Alexa's interaction model, Dialogflow's agent."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from edp.spec import UserError
from trainables.corpora import schema_imports
from trainables.corpora.assistants import built_in_values
from trainables.corpora.schema import ReadSchema, Schema, find_schema
from trainables.corpora.schema_text import make_text

RASA = """
version: "3.1"
nlu:
- intent: book
  examples: |
    - a flight to [nyc]{"entity": "city", "role": "to", "value": "New York"}
    - from [big apple]{"entity": "city", "role": "from"} please
    - fly [paris](city) [today](date:2026-01-01) or [now][{"entity": "date"}, {"entity": "x"}]
    - what {is} this
    - an [odd one]{nothing}
    no dash
- intent: chitchat/name
  examples:
  - text: |
      who are you?
    metadata: {sentiment: neutral}
- intent: chitchat/weather
  examples: |
    - is it cold
- synonym: New York
  examples: |
    - big apple
    - the city
- synonym: other
  examples: |
    - unused
- lookup: city
  examples: |
    - berlin
    - new york
- regex: zip
  examples: |
    - \\d{5}
responses: {}
"""
ALEXA: dict[str, Any] = {
    "interactionModel": {
        "languageModel": {
            "invocationName": "trips",
            "intents": [
                {"name": "AMAZON.StopIntent", "samples": []},
                {
                    "name": "Plan",
                    "slots": [
                        {"name": "to", "type": "AMAZON.US_CITY", "samples": ["to {to}"]},
                        {"name": "mood", "type": "Mood"},
                        {"name": "what", "type": "AMAZON.SearchQuery"},
                    ],
                    "samples": ["plan a {mood} trip to {to}'s zoo", "find {what}", "go {nowhere}", "go [now]", "plan"],
                },
            ],
            "types": [{"name": "Mood", "values": [{"id": "", "name": {"value": "calm", "synonyms": ["quiet", " "]}}]}],
        },
        "dialog": {},
    }
}


def phrase(*pieces: str | tuple[str, str, str]) -> dict[str, Any]:
    keys = ("text", "alias", "meta")
    data = [{"text": one} if isinstance(one, str) else dict(zip(keys, one, strict=True)) for one in pieces]
    return {"id": "1", "data": data, "isTemplate": False, "count": 0}


AGENT: dict[str, Any] = {
    "agent.json": {"language": "en", "supportedLanguages": ["de"]},
    "intents/Light - on.json": {"id": "2", "name": "Light: on", "responses": [{"speech": "no text of ours"}]},
    "intents/Light - on_usersays_en.json": [
        phrase("turn on the ", ("kitchen", "where", "@room"), "'s light"),
        phrase("light in the ", ("den", "where", "@room"), " ", ("please", "", "@sys.ignore")),
        {**phrase("@room:where on"), "isTemplate": True},
        phrase("lights [all]"),
    ],
    "intents/Light - on_usersays_de.json": [phrase("licht an")],
    "intents/Bye_usersays_en.json": [phrase("bye")],
    "intents/Default Fallback Intent.json": {"name": "Default Fallback Intent", "fallbackIntent": True},
    "entities/room.json": {"name": "room"},
    "entities/room_entries_en.json": [{"value": "attic", "synonyms": ["attic", "loft"]}, {"value": "@size:size"}],
    "entities/code.json": {"name": "code", "isRegexp": True},
    "entities/code_entries_en.json": [{"value": "[0-9]+", "synonyms": []}],
    "knowledgeBases/x.json": "not read",
}


def folder_of(content: dict[str, Any], root: Path) -> Path:
    for name, one in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(one if isinstance(one, str) else json.dumps(one), encoding="utf-8")
    return root


def zip_of(content: dict[str, Any], path: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, one in content.items():
            archive.writestr(prefix + name, one if isinstance(one, str) else json.dumps(one))
    return path


def read(path: Path) -> ReadSchema:
    return find_schema(str(path), "corpus.schema = x")


def samples_of(schema: Schema) -> dict[str, tuple[str, ...]]:
    return {name: one.samples for name, one in schema.intents.items()}


def check_rasa(found: ReadSchema) -> None:
    assert samples_of(found.schema) == {
        "book": (
            "a flight to [nyc](city.to)",
            "from [big apple](city.from) please",
            "fly [paris](city) [today](date) or [now](date)",
        ),
        "chitchat": ("who are you?", "is it cold"),
    }
    assert found.schema.names.slots == ("city", "city.from", "city.to", "date")
    cities = {"berlin", "new york", "nyc", "big apple", "paris", "the city"}
    assert {name: set(values) for name, values in found.schema._values.items()} == {
        "city": cities,
        "city.from": cities,
        "city.to": cities,
        "date": {"today", "now"},
    }
    assert {"samples with brackets that mark no entity (2)", "regexes (1)", "sections beside nlu (1)"} < set(
        found.unread
    )


def test_rasa_is_read_from_a_file_a_folder_and_a_zip(tmp_path: Path) -> None:
    whole = {"nlu.yml": RASA}
    check_rasa(read(folder_of(whole, tmp_path / "one") / "nlu.yml"))
    head, tail = RASA.split("- synonym: New York")
    project = {
        "data/nlu.yml": head,
        "data/more/nlu.yaml": 'version: "3.1"\nnlu:\n- synonym: New York' + tail,
        "domain.yml": "intents: [book]",
        "chart.yml": "{{ no yaml }}",
        ".git/nlu.yml": "nlu: x",
        "data/notes.txt": "nlu",
    }
    for path in (folder_of(project, tmp_path / "rasa"), zip_of(project, tmp_path / "rasa.zip")):
        found = read(path)
        check_rasa(found)
        assert "YAML files without nlu (2)" in found.unread
        assert "lines of examples that begin without a dash (1)" in found.unread


def test_alexas_model_has_values_of_its_own_types_and_of_the_most_usual_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "en-US.json"
    path.write_text(json.dumps(ALEXA, indent="\t"), encoding="utf-8")
    found = read(path)
    assert samples_of(found.schema) == {"AMAZON.StopIntent": (), "Plan": ("plan a {mood} trip to {to} 's zoo", "plan")}
    assert found.schema._values == {
        "to": tuple(built_in_values()["AMAZON.US_CITY"]),
        "mood": ("calm", "quiet"),
        "what": (),
    }
    assert found.unread == (
        "samples of a slot alone (1)",
        "samples with a slot of type 'AMAZON.SearchQuery', which has no values (1)",
        "samples with braces or brackets that hold no slot of their intent (2)",
    )
    # A type of the file with the name of a built-in one extends it, and one slot may have two types.
    other = json.loads(json.dumps(ALEXA))
    language = other["interactionModel"]["languageModel"]
    language["types"].append({"name": "AMAZON.US_CITY", "values": [{"name": {"value": "fargo"}}]})
    language["intents"].append({"name": "Go", "slots": [{"name": "to", "type": "Mood"}], "samples": ["go {to}"]})
    path.write_text(json.dumps(language | {"languageModel": language}), encoding="utf-8")
    values = read(path).schema._values["to"]
    assert {"fargo", "seattle", "calm"} < set(values)


@pytest.mark.parametrize("kind", ["folder", "zip", "zip with a folder"])
def test_dialogflows_agent_is_read_in_its_own_language(kind: str, tmp_path: Path) -> None:
    path = (
        folder_of(AGENT, tmp_path / "agent")
        if kind == "folder"
        else zip_of(AGENT, tmp_path / "agent.zip", "Agent/" if "with" in kind else "")
    )
    found = read(path)
    assert samples_of(found.schema) == {
        "Bye": ("bye",),
        "Default Fallback Intent": (),
        "Light: on": ("turn on the [kitchen](where) 's light", "light in the [den](where) please"),
    }
    assert found.schema._values == {"where": ("attic", "loft")}
    assert found.unread == (
        "entries of entities that are no plain text (2)",
        "files in the language de, where en is read (1)",
        "training phrases that are templates, or have brackets (2)",
    )
    words = {word for one in make_text(found.schema.text) for word in one.tokens}
    assert {"kitchen", "den", "attic", "loft"} <= words


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"nlu.yml": "nlu: 7"}, r"nlu\.yml: nlu: Input should be a valid list; allowed: intents, synonyms and"),
        ({"nlu.yml": "nlu: [{intent: a, examples: {b: c}}]"}, r"nlu\.yml: nlu: 0\.examples\..*; allowed: intents"),
        ({"nlu.yml": "nlu:\n- intent: a\n  examples: |\n    - b"}, "there is one intent, .*; allowed: several"),
        ({"nlu.yml": "nlu: ["}, r"nlu\.yml, line 1: not YAML"),
        ({"nlu.yml": "nlu: [\\xff"}, "not YAML"),
        ({"readme.md": "x"}, "holds no schema; allowed: a schema file, nlu.yml of Rasa"),
        ({"agent.json": "{"}, r"agent\.json: not JSON: .*; allowed: an agent of Dialogflow ES"),
        ({"agent.json": "[" * 100_000}, r"agent\.json: not JSON"),
        ({"agent.json": []}, r"agent\.json: Input should be a valid dictionary.*; allowed: an agent"),
        ({"intents/a_usersays_en.json": {"data": 1}}, r"a_usersays_en\.json: .*; allowed: training phrases of an"),
        ({"intents/a_usersays_en.json": [{"data": [{"text": 1}]}]}, r"0\.data\.0\.text: Input should be a valid str"),
        ({"entities/a_entries_en.json": [{}]}, r"0\.value: Field required; allowed: entries of an entity"),
        ({"agent.json": {}}, "it has no label; allowed"),
        ({"intents/a.json": {"name": "x" * 300}, "intents/b.json": {}}, "is no name of a label; allowed: 1 to 200"),
    ],
)
def test_a_file_of_others_that_cannot_be_read_is_one_line(content: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = folder_of(content, tmp_path / "x")
    with pytest.raises(UserError, match=says) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_sizes_are_bounded_and_damaged_zips_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = zip_of({"agent.json": " " * 3_000_000 + "{}"}, tmp_path / "bomb.zip")
    assert bomb.stat().st_size < 10_000
    monkeypatch.setattr(schema_imports, "MAX_BYTES", 1_000_000)
    large = tmp_path / "large.yaml"
    large.write_text("intents: [a, b]\n" + "#" * 1_000_000)
    for path in (bomb, large, folder_of({"agent.json": " " * 2_000_000}, tmp_path / "big")):
        with pytest.raises(UserError, match="bytes; allowed: at most that many"):
            read(path)
    monkeypatch.setattr(schema_imports, "MAX_FILES", 5)
    with pytest.raises(UserError, match="more than 5 files"):
        read(zip_of(AGENT, tmp_path / "many.zip"))
    monkeypatch.setattr(schema_imports, "MAX_TEXTS", 5)
    with pytest.raises(UserError, match="samples and values; allowed: at most 5"):
        read(folder_of({"nlu.yml": RASA}, tmp_path / "much"))
    good = zip_of({"agent.json": {}}, tmp_path / "good.zip").read_bytes()
    (tmp_path / "bad.zip").write_bytes(good.replace(b"PK\x03\x04", b"PK\x03\x05"))
    with pytest.raises(UserError, match="cannot be unpacked: "):
        read(tmp_path / "bad.zip")


def test_names_in_a_zip_lead_nowhere(tmp_path: Path) -> None:
    outside = {f"../{name}": one for name, one in AGENT.items()}
    with pytest.raises(UserError, match="holds no schema"):
        read(zip_of(outside, tmp_path / "up.zip"))
