"""`edp-sweep pretrain`: from a recipe to a folder, whatever stops it on the way; and what a private recipe may not do
with that folder."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow.tracking import MlflowClient
from rich.console import Console

from sweeps.commands.pretrain import pretrain
from sweeps.config.loading import PRETRAINING, load_pretraining, recipe_names
from tests.conftest import Command
from tests.support import writers
from tests.support.public import CORPORA, settings
from trainables.corpora import PUBLIC, generate

FILES = [
    "config.json",
    "model.safetensors",
    "names.safetensors",
    "pretraining.json",
    "tokenizer.json",
    "utterances.npy",
]
BENCHMARKS = {"atis", "snips", "nlu_eval"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "data"
    settings(folder)
    return folder


def write_recipe(place: Path, path: Path, **changes: Any) -> Path:
    path.write_text(yaml.safe_dump(settings(place, **changes)))
    return path


def results(folder: Path) -> tuple[bytes, Any, bytes]:
    """What does not depend on how long it took."""
    about = json.loads((folder / "pretraining.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    return weights, {k: v for k, v in about.items() if "seconds" not in k}, (folder / "utterances.npy").read_bytes()


@pytest.fixture(scope="module")
def whole(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pretraining that nothing stopped."""
    storage = tmp_path_factory.mktemp("runs")
    goes_on(write_recipe(place, storage / "tiny.yaml"), storage)
    return storage / "encoders" / "tiny"


def goes_on(recipe: Path, storage: Path) -> str:
    """Runs a pretraining to its end in this process; what it says."""
    said = Console(file=io.StringIO(), width=200)
    pretrain(str(recipe), [], output=None, storage=storage, tracking_uri=None, console=said)
    assert isinstance(said.file, io.StringIO)
    return said.file.getvalue()


@pytest.mark.slow
def test_one_json_document_a_folder_a_run_and_a_registered_version(
    place: Path, tmp_path: Path, command: Command
) -> None:
    recipe = write_recipe(place, tmp_path / "tiny.yaml")
    storage, output = tmp_path / "runs", tmp_path / "encoder"
    words = ("pretrain", str(recipe), "--storage", str(storage), "-o", str(output), "--register", "voice", "--json")
    code, out, err = command(*words)
    assert code == 0, err
    document = json.loads(out)
    assert sorted(file.name for file in output.iterdir()) == FILES
    assert document["output"] == str(output)
    assert document["steps"] == 60
    assert [step for step, _ in document["loss"]] == [20, 40, 60]
    assert document["cpu_seconds"] > 0
    about = json.loads((output / "pretraining.json").read_text())
    assert about.items() <= document.items()
    assert "step 60 of 60, loss" in err

    client = MlflowClient(tracking_uri=document["tracking_uri"])
    run = client.get_run(document["run_id"])
    assert (run.info.status, run.data.tags["state"], run.data.tags["role"]) == ("FINISHED", "complete", "pretrain")
    assert [metric.step for metric in client.get_metric_history(document["run_id"], "loss")] == [20, 40, 60]
    assert sorted(Path(one.path).name for one in client.list_artifacts(document["run_id"], "encoder")) == FILES
    version = client.get_model_version("voice", document["model"]["version"])
    digests = {f"corpus.{corpus['name']}": corpus["digest"] for corpus in about["corpora"]}
    assert len(digests) == 3
    assert digests.items() <= version.tags.items()
    assert not list((storage / "cache").glob("*/checkpoint.pt"))

    code, out, err = command(*words[:-3])
    assert (code, "nothing is left to train" in err, str(output) in out) == (0, True, True)
    code, out, err = command(*words[:-3], "--register", "later", "--json")
    assert (code, "step" in err) == (0, False), err
    later = client.get_model_version("later", json.loads(out)["model"]["version"])
    assert later.tags == version.tags
    assert sorted(Path(one.path).name for one in client.list_artifacts(later.run_id, "encoder")) == FILES
    first, *others = settings(place)["corpora"]
    other = write_recipe(place, tmp_path / "other.yaml", corpora=[{**first, "utterances": 20}, *others])
    for given, why in (
        ([str(recipe), "--set", "training.seed=9"], "with other settings"),
        ([str(other)], "from another starting point or other corpora"),
    ):
        code, out, err = command("pretrain", *given, *words[2:])
        assert (code, out) == (2, "")
        assert f"it is there already, {why}; allowed: a new folder" in err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_was_killed_or_stopped_goes_on_and_gives_the_same_folder(
    number: signal.Signals, place: Path, whole: Path, tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    recipe, storage = write_recipe(place, tmp_path / "tiny.yaml"), tmp_path / "runs"
    words = [sys.executable, "-m", "sweeps.commands", "pretrain", str(recipe), "--storage", str(storage)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        while not list(storage.glob("cache/*/checkpoint.pt")):
            assert first.poll() is None, "ended before it was stopped"
            time.sleep(0.005)
        kill(first.pid, number)
        _, err = first.communicate(timeout=400)
    assert not (storage / "encoders").exists()
    if number == signal.SIGINT:
        assert first.returncode == 130
        assert "the same command goes on from here" in err
    else:
        assert first.returncode == -signal.SIGKILL
    assert "going on from a checkpoint" in goes_on(recipe, storage)
    assert results(storage / "encoders" / "tiny") == results(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no_such_recipe"], "recipe = 'no_such_recipe'"),
        (["public_minilmm"], "did you mean public_minilm?"),
        (["RECIPE", "--set", "corpora=[]"], "corpora"),
        (["RECIPE", "--set", "corpora=[{name: a}, {name: a}]"], "corpora: a is listed twice"),
        (["RECIPE", "--set", "corpora=[{name: both, privat: true}]"], "corpora.0.privat = true: unknown setting"),
        (["RECIPE", "--set", "stages=[{steps: 1, corpora: [atis]}]"], "stages.0.corpora = atis: allowed: both, "),
        (["RECIPE", "--set", "stages=[{steps: 1, replay: 9}]"], "stages.0.replay = 9: the stage has all corpora"),
        (["RECIPE", "--set", "stages=[{steps: 0}]"], "stages.0.steps = 0"),
        (["RECIPE", "--set", "stages=[]"], "stages"),
        (["RECIPE", "--set", "objective=contrastive"], "objective = 'contrastive'"),
        (["RECIPE", "--set", "model.pretrained=/not/there"], "model.pretrained = /not/there: no config.json"),
        (["RECIPE", "--set", "training.device=cuda"], "training.device = cuda"),
        (["RECIPE", "--set", "trainin.seed=1"], "trainin = "),
        (["RECIPE", "--set", "corpora=[{name: mine, path: /not/there}]", "--set", "stages=[{steps: 1}]"], "/not/there"),
        (["RECIPE", "--output", "TAKEN"], "it is there already"),
        (["RECIPE", "--register", "a/b"], "--register = 'a/b'"),
        (["RECIPE", "--storage", "RECIPE"], "storage = "),
        (["RECIPE", "--tracking-uri", "nonsense://x"], "tracking-uri = 'nonsense://x'"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_nothing_is_made(
    words: list[str], says: str, place: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    known = {"RECIPE": str(write_recipe(place, tmp_path / "tiny.yaml")), "TAKEN": str(taken)}
    code, out, err = command("pretrain", *(known.get(word, word) for word in words))
    assert code == 2, err
    assert says in err
    assert err.count("\n") == 1, err
    assert out == ""
    assert not (tmp_path / "runs" / "encoders").exists()


@pytest.mark.slow
def test_a_private_recipe_may_start_from_it_unless_its_corpus_was_in_it(
    whole: Path, place: Path, tmp_path: Path, command: Command
) -> None:
    """Refused before Ray starts; the corpus' utterances, in whatever file, are found by the hashes in the folder."""
    copied = writers.jsonl([*CORPORA["slots"], *generate("health", 300, seed=8)], tmp_path / "copied")
    for name, path, says in (
        ("both", place / "both", "it was trained on both without privacy"),
        ("mine", place / "slots", "it was trained on slots without privacy"),
        ("mine", copied, "distinct utterances of corpus = mine (25.06%) are in it too"),
    ):
        private = {
            "corpus": {"name": name, "path": str(path)},
            "model": {"kind": "bert", "pretrained": str(whole), "vocabulary": {"name": "video", "utterances": 60}},
            "shadow": {"corpus": {"name": "video", "utterances": 60}},
        }
        recipe = tmp_path / "private.yaml"
        recipe.write_text(yaml.safe_dump(private))
        code, _, err = command("run", str(recipe), "--storage", str(tmp_path / "runs"), "--name", "x")
        assert code == 2, err
        assert says in err
        assert err.count("\n") == 1, err
        assert not (tmp_path / "runs" / "x").exists()


def test_the_recipes_that_come_along_are_whole_and_never_hold_their_target() -> None:
    names = recipe_names(PRETRAINING)
    assert names == ["public_for_atis", "public_for_nlu_eval", "public_for_snips", "public_minilm"]
    for name in names:
        stem, spec = load_pretraining(name, [])
        corpora = {corpus.name for corpus in spec.corpora}
        assert stem == name
        assert corpora <= set(PUBLIC)
        target = {name.removeprefix("public_for_")} if name != "public_minilm" else BENCHMARKS
        assert corpora & BENCHMARKS == BENCHMARKS - target


@pytest.mark.slow
def test_a_terminal_gets_a_bar_with_loss_and_an_estimate(place: Path, tmp_path: Path) -> None:
    recipe = write_recipe(place, tmp_path / "tiny.yaml", stages=[{"steps": 30, "batch_size": 8}])
    said = Console(file=io.StringIO(), width=120, force_terminal=True)
    found = pretrain(
        str(recipe), [], output=tmp_path / "made", storage=tmp_path / "runs", tracking_uri=None, console=said
    )
    assert isinstance(said.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.file.getvalue())
    assert re.search(r"━ 30/30 loss \d\.\d{3} \d:\d\d:\d\d", text), text
    assert found["steps"] == 30
