"""`edp-sweep attack` for real: a sweep with canaries, its attacks, a killed worker, what is left behind."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from mlflow.tracking import MlflowClient
from rich.console import Console

from sweeps.config.parts import ResourcesSpec
from sweeps.engine.jobs.attack import find_target
from sweeps.engine.jobs.attack_models import train_references
from tests.conftest import TINY_RECIPE, Command
from tests.support.tiny import corpus, spec
from trainables.features.encoded_corpus import EncodedCorpus
from trainables.measure.attacks import every_attack
from trainables.training.references import ReferenceModel, attacked, halves, reference_spec, same_corpus_parts

__all__ = ["corpus"]
pytestmark = pytest.mark.usefixtures("kept_groups")

NAMES = {attack.name for attack in every_attack()}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def swept(long_story: None, ray_cluster: str, storage: Path, command: Command) -> dict[str, Any]:
    """What `run --json` printed of this module's sweep, which attacks its front with two references at its end."""
    kept = storage / "document.json"
    if not kept.is_file():
        recipe = storage / "audited.yaml"
        recipe.write_text(TINY_RECIPE.replace("trials: 2", "trials: 1"))
        settings = ["attacks.at_end=true", "attacks.references=2", "search.keep_epochs=1"]
        words = [word for setting in settings for word in ("--set", setting)]
        code, out, err = command("run", str(recipe), "--name", "audited", "--storage", str(storage), "--json", *words)
        assert code == 0, err
        assert "attacked trial 0" in err
        kept.write_text(out)
    return json.loads(kept.read_text())


def references(storage: Path) -> dict[str, float]:
    """When each file of the cache was written."""
    return {str(path): path.stat().st_mtime for path in (storage / "cache").glob("references-*/*.npz")}


def test_a_sweep_attacks_its_front_at_its_end(swept: dict[str, Any], storage: Path) -> None:
    client = MlflowClient(swept["tracking_uri"])
    run = client.get_run(swept["trials"][0]["run_id"])
    assert {f"attack_{name}_auc" for name in NAMES} <= set(run.data.metrics)
    found = {file.path for file in client.list_artifacts(run.info.run_id, "attacks")}
    assert found == {"attacks/attacks.json", "attacks/attacks.html"}


def test_a_private_corpus_is_audited_without_privacy_alone(
    long_story: None, ray_cluster: str, tmp_path: Path, command: Command
) -> None:
    recipe, storage = yaml.safe_load(TINY_RECIPE), tmp_path / "runs"
    lines = [
        {"tokens": ["call", f"person{i}"], "tags": ["O", "B-name"], "intent": ("call", "meet")[i % 2]}
        for i in range(120)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {k: v for k, v in recipe.items() if k in ("model", "shadow", "training")}
    corpus = {"name": "mine", "path": str(tmp_path / "mine.jsonl")}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(settings | {"corpus": corpus, "edp": {"z0": 1.0}}))
    audit = ("--set", "canaries.count=20", "--set", "canaries.kind=new_tokens")
    line = ("train", str(tmp_path / "mine.yaml"), *audit, "--storage", str(storage), "--json")
    code, _, err = command(*line)
    assert (code, "canaries are made of the corpus' utterances, so no epsilon" in err) == (2, True)
    code, out, err = command(*line, "--set", "training.method=sgd")
    assert code == 0, err
    trained = json.loads(out)
    assert (trained["metrics"]["canaries"], trained["metrics"]["epsilon"]) == (20, math.inf)
    assert trained["metrics"]["epsilon_audited"] >= 0
    assert not trained["ledger"]["private"]
    (coins,) = (storage / "cache").glob("coins-*.json")
    tossed = json.loads(coins.read_text())
    corpus = EncodedCorpus.open(next((storage / "cache").glob("mine-with-canaries-*")))
    assert corpus.planted == sum(tossed)
    assert not list(corpus.folder.rglob("*coins*"))
    code, out, err = command("attack", Path(trained["output"]).name, "--references", "2", "--storage", str(storage))
    assert code == 0, err
    assert "ε honest ∞ (no formal guarantee), ε paper ∞ (no formal guarantee), ε audited ≥" in out


@pytest.mark.parametrize("words", [("attack", "audited/0"), ("confirm", "audited", "--seeds", "2")])
def test_what_was_trained_on_another_corpus_is_not_attacked_or_compared(
    words: tuple[str, ...], swept: dict[str, Any], storage: Path, command: Command
) -> None:
    kept = storage / "audited" / "corpora.json"
    before = kept.read_text()
    kept.write_text(json.dumps(json.loads(before) | {"corpus": "of other content"}))
    code, _, err = command(*words, "--storage", str(storage))
    kept.write_text(before)
    assert code == 2
    assert "corpus = 'communication': its content has changed since audited began; allowed: the corpus as it was" in err


def test_the_baseline_is_attacked_with_the_same_references_and_again_for_nothing(
    swept: dict[str, Any], storage: Path, command: Command
) -> None:
    trial = find_target("audited/0", storage, None)
    assert trial.taught_by == find_target("audited/baseline", storage, None).spec != trial.spec
    before = references(storage)
    assert len(before) == 3, "two references and the shadow of the same corpus"
    words = ("--references", "2", "--storage", str(storage), "--json")
    code, out, err = command("attack", "audited/baseline", *words)
    assert code == 0, err
    document = json.loads(out)
    assert references(storage) == before
    assert document["run_id"] == swept["baseline"]["run_id"]
    assert {one["name"] for one in document["attacks"]} == NAMES
    for one in document["attacks"]:
        assert one["auc_ci"][0] <= one["auc"] <= one["auc_ci"][1]
        assert one["tpr_at_01pct_fpr"] <= one["tpr_at_1pct_fpr"]
        assert {"tpr_at_1pct_fpr_ci", "tpr_at_01pct_fpr_ci", "members", "non_members"} <= set(one)
    best = max(document["attacks"], key=lambda one: one["auc"])
    assert document["strongest"] == best["name"]
    assert document["epsilon"] == math.inf
    assert document["formal_guarantee"] is False
    assert document["epsilon_audited"] is None
    shadow = next(one for one in document["attacks"] if one["name"] == "shadow")
    assert shadow["auc"] == pytest.approx(swept["baseline"]["mia_auc"], abs=0.02)
    # In words.
    code, out, err = command("attack", "audited/baseline", "--references", "2", "--storage", str(storage))
    assert code == 0, err
    assert "lira_online" in out
    assert "ε honest ∞ (no formal guarantee), ε paper ∞ (no formal guarantee), at δ" in out
    page = (storage / "audited" / "baseline" / "attacks.html").read_text()
    assert "<svg" in page
    assert all(f"<td>{name}" in page for name in NAMES)


def test_what_was_trained_from_a_picked_configuration_is_attacked_by_its_folder(
    swept: dict[str, Any], storage: Path, tmp_path: Path, command: Command
) -> None:
    picked = tmp_path / "picked.yaml"
    where = ("--storage", str(storage))
    assert command("pick", "audited", "--output", str(picked), *where)[0] == 0
    code, out, err = command("train", str(picked), "--json", *where)
    assert code == 0, err
    trained = json.loads(out)
    by_name = find_target(Path(trained["output"]).name, storage, None)
    assert by_name.run_id == trained["run_id"]
    code, out, err = command("attack", trained["output"], "--references", "2", "--json", *where)
    assert code == 0, err
    assert json.loads(out)["run_id"] == trained["run_id"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing/0"], "no sweep of this name"),
        (["nothing"], "run = 'nothing'"),
        (["audited/7"], "point = '7': sweep audited has no model of this name"),
        (["audited/0@9"], "(the front: 0"),
        (["audited/trials/0"], "no model of this name"),
        *[(["audited/0", "--references", f"{k}"], f"--references = {k}") for k in (-1, 3, 258)],
        (["audited/0", "--reference-training", "dp"], "dp"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], says: str, swept: dict[str, Any], storage: Path, command: Command
) -> None:
    code, out, err = command("attack", *words, "--storage", str(storage))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert out == ""


def reference_models(corpus: Path, folder: Path, count: int, **training: Any) -> list[ReferenceModel]:
    one = spec(training=training)
    return [ReferenceModel(reference_spec(one, "sgd", k), corpus, folder / f"{k}.npz", k) for k in range(count)]


def test_a_reference_whose_worker_is_killed_is_trained_again(
    ray_cluster: str, corpus: Path, tmp_path: Path, kill: Callable[[int, int], None]
) -> None:
    killed: list[int] = []

    def kill_it() -> None:
        started = tmp_path / ".0.npz.epochs"
        while not started.is_file():
            time.sleep(0.05)
        killed.append(_pid_of_a_task(ray_cluster))
        kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_it, daemon=True)
    killer.start()
    train_references(reference_models(corpus, tmp_path, 1, epochs=100), ResourcesSpec(), Console(quiet=True))
    killer.join()
    assert killed
    with np.load(tmp_path / "0.npz") as found:
        assert np.isfinite(found["member_losses"]).all()
    assert [path.name for path in tmp_path.iterdir()] == ["0.npz"], "nothing half-made is left"


def _pid_of_a_task(address: str) -> int:
    """Process id of the one that trains in this test's own cluster."""
    from ray.util.state import list_tasks

    while not (
        tasks := list_tasks(address=address, detail=True, filters=[("name", "=", "_train"), ("state", "=", "RUNNING")])
    ):
        time.sleep(0.1)
    return int(tasks[0]["worker_pid"])


def test_each_utterance_is_inside_one_reference_of_a_pair_with_all_of_its_copies(corpus: Path) -> None:
    encoded = EncodedCorpus.open(corpus)
    first, second, third = (halves(encoded, 0, k) for k in range(3))
    for split in ("train", "test"):
        assert (first[split] ^ second[split]).all()
        assert 0.3 < first[split].mean() < 0.7
        assert (third[split] != first[split]).any()
    # A corpus whose test split is its training split over again: copies go together.
    twice = replace_test_with_train(encoded)
    copies = halves(twice, 0, 0)
    assert (copies["train"] == copies["test"]).all()


def replace_test_with_train(encoded: EncodedCorpus) -> EncodedCorpus:
    other = encoded.with_train({"train": np.arange(encoded.size("train"))})
    for kind in ("offsets", "tokens", "tags", "intents"):
        other._arrays["test", kind] = other._arrays["train", kind]
    return other


def test_the_shadow_of_the_same_corpus_shares_no_utterance_with_what_it_attacks(corpus: Path) -> None:
    encoded = EncodedCorpus.open(corpus)
    inside, outside, left = same_corpus_parts(encoded, 0)
    assert sorted([*inside, *outside, *left]) == list(range(encoded.size("test")))
    assert len(inside) == len(outside) == encoded.size("test") // 4
    members, non_members = attacked(encoded, 0)
    assert len(members) == len(non_members)


def test_references_of_plain_sgd_do_not_depend_on_what_a_trial_searched() -> None:
    one = spec()
    other = spec(edp={"C": 0.1, "z0": 2.0}, training={"workers": 8})
    assert reference_spec(one, "sgd", 3).training == reference_spec(other, "sgd", 3).training
    assert reference_spec(one, "own", 3).training.method == "edp"
    assert reference_spec(one, "own", 3).training.seed != reference_spec(one, "own", 4).training.seed


def test_resume_attacks_what_the_sweeps_end_has_left_out(
    swept: dict[str, Any], storage: Path, command: Command
) -> None:
    kept = Path(storage / "audited" / "trials" / "0" / "attacks.json")
    kept.unlink()
    code, _, err = command("resume", "audited", "--storage", str(storage))
    assert code == 0, err
    assert "attacked trial 0" in err
    assert kept.is_file()
