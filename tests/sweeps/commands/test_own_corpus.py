"""`edp-sweep run FILE`: what it chooses for a corpus, what it asks for first, what it refuses. Nothing trains here."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sweeps.config.loading import load_recipe
from sweeps.config.own_corpus import _delta, settings_for
from sweeps.config.recipe import Recipe
from tests.conftest import Command
from tests.support import writers
from trainables.corpora import generate, load_corpus
from trainables.corpora.labels import labels_of
from trainables.corpora.types import Splits

MINE = generate("health", 400, seed=5)


def intents_alone(folder: Path) -> Path:
    """Write a CSV file with a text and an intent in each row."""
    rows = [f"{' '.join(one.tokens)},{one.intent}" for one in MINE]
    (folder / "mine.csv").write_text("\n".join(["text,label", *rows]))
    return folder / "mine.csv"


def slots_alone(folder: Path) -> Path:
    """Write a CoNLL file as NER has them."""
    blocks = ["".join(f"{word} {tag}\n" for word, tag in zip(one.tokens, one.tags, strict=True)) for one in MINE]
    (folder / "mine.conll").write_text("\n".join(blocks))
    return folder / "mine.conll"


def joint(folder: Path) -> Path:
    """Write JSON lines with intents and slots."""
    return writers.jsonl(MINE, folder).rename(folder / "mine.jsonl")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def splits_of(recipe: str) -> Splits:
    return load_corpus(load_recipe(recipe, [])[1].corpus)


def fitted(corpus: Path, *overrides: str, schema: str | None = None, encoder: Path | None = None) -> Recipe:
    """Return the recipe that is run for a corpus."""
    given = {"schema": schema, "labels_are_public": schema is None, "epsilon": 3.0, "encoder": encoder}
    return settings_for(str(corpus), list(overrides), say=print, **given)[1]


@pytest.mark.parametrize(("write", "task"), [(joint, "joint"), (intents_alone, "intents"), (slots_alone, "slots")])
def test_the_recipe_that_it_writes_is_of_the_corpus_task_and_size(
    write: Callable[[Path], Path], task: str, here: Path, command: Command
) -> None:
    corpus = write(here)
    words = ("run", corpus.name, "--labels-are-public", "--epsilon", "3", "--write-recipe", "r.yaml", "--trials", "5")
    code, out, err = command(*words)
    assert (code, out) == (0, "wrote r.yaml; run it with: edp-sweep run r.yaml\n"), err
    assert f"δ = 0.001, the largest power of ten below 1/{len(splits_of('r.yaml').train)}" in err
    _, recipe = load_recipe("r.yaml", [])
    assert recipe == fitted(corpus, "search.trials=5")
    assert (recipe.edp.epsilon, recipe.edp.delta, recipe.search.plan, recipe.search.trials) == (3, 1e-3, "proxy", 5)
    assert recipe.corpus.path == str(corpus)
    assert recipe.search.proxy is not None
    assert labels_of(load_corpus(recipe.search.proxy)).task == task, "else the search is refused"
    assert not Path("runs").exists()
    code, _, err = command(*words)
    assert (code, err) == (2, "edp-sweep: --write-recipe = 'r.yaml': it exists; allowed: a new file\n")


def test_delta_is_the_largest_power_of_ten_below_one_in_the_number() -> None:
    for units in [*range(1, 1200), 9_999, 10_000, 10_001, 45_000, 100_000]:
        power = round(1 / _delta(units))
        assert power / 10 <= units < power
        assert f"{_delta(units):e}".startswith("1.000000e-")


def test_columns_that_are_not_read_are_named_and_any_name_of_a_file_is_read(here: Path, command: Command) -> None:
    path = here / "a\N{GRINNING FACE}.csv"
    path.write_text("\n".join(f"{line},speaker" for line in intents_alone(here).read_text().split("\n")))
    code, _, err = command("run", str(path), "--labels-are-public", "--write-recipe", "mine.yaml")
    assert code == 0, err
    assert f"{path.name}: not read: speaker" in err


@pytest.mark.slow
def test_a_large_corpus_has_drawn_batches(here: Path) -> None:
    path = writers.jsonl(generate("health", 16_000, seed=5), here)
    recipe = fitted(path)
    units = len(load_corpus(recipe.corpus).train)
    assert units > 7_000
    assert recipe.edp.sampling == "poisson"
    assert isinstance(recipe.training.batch_size, int)
    assert 10 < units / recipe.training.batch_size < 14
    assert recipe.search.proxy is not None
    assert recipe.search.proxy.utterances == pytest.approx(units / 0.45, rel=0.05)


def test_without_a_schema_one_is_written_and_the_next_command_said(here: Path, command: Command) -> None:
    joint(here)
    typed = ("run", "mine.jsonl", "--epsilon", "3", "--write-recipe", "r.yaml")
    code, out, err = command(*typed)
    assert (code, out) == (2, "")
    assert "mine.schema.yaml was written: the names of the labels of mine.jsonl. Every model shows them" in err
    assert "in fewer than 10 utterances: " in err
    assert sorted(path.name for path in here.iterdir()) == ["mine.jsonl", "mine.schema.yaml"]
    (line,) = [line for line in err.splitlines() if line.startswith("edp-sweep: --schema: missing; ")]
    then = shlex.split(line.partition("type: ")[2].partition("   ")[0])
    assert then == ["edp-sweep", *typed, "--schema", "mine.schema.yaml"]

    reviewed = Path("mine.schema.yaml").read_text().replace("  report_symptom: {}\n", "")
    Path("mine.schema.yaml").write_text(reviewed)
    code, _, err = command(*typed)
    assert (code, "mine.schema.yaml is there, and stays as it is: " in err) == (2, True)
    assert Path("mine.schema.yaml").read_text() == reviewed
    code, _, err = command(*then[1:])
    assert code == 0, err
    assert load_recipe("r.yaml", [])[1].corpus.schema == str(here / "mine.schema.yaml")


def test_the_task_is_that_of_the_schema_and_no_label_of_the_corpus_decides_a_setting(here: Path) -> None:
    names = {
        "intents": sorted({one.intent for one in MINE}),
        "slots": sorted({tag[2:] for one in MINE for tag in one.tags if tag != "O"}),
    }
    corpus = joint(here)
    for task in names:
        Path("s.yaml").write_text(yaml.safe_dump({task: names[task]}))
        recipe = fitted(corpus, schema="s.yaml")
        assert recipe.search.proxy is not None
        assert recipe.search.proxy.schema == f"communication_{task}"
    Path("s.yaml").write_text(yaml.safe_dump(names))
    whole = fitted(corpus, schema="s.yaml")
    unlike = [one._replace(tags=("O",) * len(one.tags), intent=names["intents"][0]) for one in MINE]
    writers.jsonl(unlike, here).rename(corpus)
    assert fitted(corpus, schema="s.yaml") == whole


LINES = {
    "empty.jsonl": "",
    "header.csv": "text,label\n",
    "one.csv": "text,label\n" + "".join(f"word{n},same\n" for n in range(400)),
    "plain.csv": "text,other\n" + "".join(f"word{n},{n % 2}\n" for n in range(400)),
    "few.csv": "text,label\n" + "".join(f"word{n},{n % 2}\n" for n in range(60)),
    "many.csv": "text,label\n" + "".join(f"word{n},label{n}\n" for n in range(12_000)),
    "mine.csv.gz": b"\x1f\x8b\x08\0",
    "wrong.yaml": "a: 1\n",
    "text.yaml": "intents: {a: {samples: [b]}, c: {samples: [d]}}\n",
    "mistyped.yaml": "corpus: {name: video}\nmodle: {}\n",
}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty.jsonl", "the file is empty"),
        ("header.csv", "0 distinct utterances"),
        ("one.csv", "it has one intent and no slots"),
        ("plain.csv", "plain.csv"),
        ("few.csv", "few.csv: it has "),
        ("many.csv", "it has 12,000 intents"),
        ("text.yaml", "text.yaml: it is a schema, and up to"),
        ("mine.csv.gz", "mine.csv.gz: is packed with gzip; allowed: the unpacked file"),
        ("wrong.yaml", "a = 1: unknown setting; allowed: attacks, "),
        ("mistyped.yaml", "modle = {}: unknown setting; did you mean model?"),
        ("nothing.csv", "no such recipe and no such file"),
    ],
)
def test_a_file_that_cannot_be_learnt_from_is_one_line_and_leaves_nothing(
    name: str, says: str, here: Path, command: Command
) -> None:
    for file, text in LINES.items():
        (here / file).write_bytes(text.encode() if isinstance(text, str) else text)
    (here / "folder").mkdir()
    before = sorted(here.rglob("*"))
    code, out, err = command("run", name)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("mine.jsonl --schema s.yaml --labels-are-public", "--labels-are-public: --schema is given too; allowed: one"),
        ("mine.jsonl --schema no.yaml", "corpus.schema = "),
        ("mine.jsonl --labels-are-public --epsilon -1", "edp.epsilon = -1"),
        ("mine.jsonl --encoder folder", "folder: no config.json there; allowed: minilm, a folder of an encoder"),
        ("quickstart --epsilon 0", "--epsilon: quickstart is no corpus; allowed: --set KEY=VALUE"),
        ("quickstart --epsilon 3", "--epsilon: quickstart is no corpus; allowed: --set KEY=VALUE"),
        ("quickstart --labels-are-public", "--labels-are-public: quickstart is no corpus"),
        ("quickstart --write-recipe r.yaml", "--write-recipe: quickstart is no corpus"),
    ],
)
def test_a_wrong_option_is_one_line(words: str, says: str, here: Path, command: Command) -> None:
    joint(here)
    (here / "folder").mkdir()
    before = sorted(here.rglob("*"))
    code, out, err = command("run", *words.split())
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert sorted(here.rglob("*")) == before
