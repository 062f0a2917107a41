"""Canaries of a private corpus void every ε: they are refused, and a sweep that has them releases nothing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from dashboards.report.page import write_report
from edp.spec import UserError
from sweeps.commands.run import next_steps
from sweeps.config.canaries import check_canaries, uncovered
from sweeps.config.loading import load_config, load_recipe, write_yaml
from sweeps.registry.card import model_card, privacy_tags
from sweeps.results.front import pareto_front
from sweeps.store.picks import Origin, write_origin
from sweeps.store.sweep import Sweep
from sweeps.tracking.run_note import run_note
from tests.conftest import TINY_RECIPE, Command
from tests.support.synthetic import sweep_of
from tests.support.tiny import spec
from trainables.config import CanariesSpec
from trainables.records.epochs import write_ledger

REFUSED = (
    "canaries.count = 40: canaries are made of the corpus' utterances, so no ε covers a private training with them; "
    "allowed: 0, a generated corpus (communication, health, video), or edp-sweep train with training.method = sgd"
)
WHY = "no ε covers it, because its 40 canaries are made of utterances of mine"


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private corpus of files."""
    file = tmp_path_factory.mktemp("corpus") / "mine.jsonl"
    lines = [
        {"tokens": ["call", f"person{i}", "now"], "tags": ["O", "B-name", "O"], "intent": ("call", "meet")[i % 2]}
        for i in range(200)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def old(mine: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep of the private corpus, made before its canaries were refused."""
    settings = (f"corpus={{name: mine, path: {mine}}}", "canaries.count=40", "edp.epsilon=8", "canaries.kind=outliers")
    return sweep_of(tmp_path_factory.mktemp("runs"), "old", 2, *settings)


@pytest.mark.parametrize("method", ["edp", "dpsgd"])
def test_every_private_method_is_refused_before_anything_is_made(
    method: str, mine: Path, tmp_path: Path, command: Command
) -> None:
    private = [f"corpus={{name: mine, path: {mine}}}", "canaries.count=40", f"training.method={method}"]
    words = [word for setting in private for word in ("--set", setting)]
    (tmp_path / "tiny.yaml").write_text(TINY_RECIPE)
    write_yaml(spec(), tmp_path / "picked.yaml")
    storage = ("--storage", str(tmp_path / "runs"))
    target = ("--set", "edp.epsilon=8")
    proxy = ("--set", f"search.proxy={{name: mine, path: {mine}}}", "--set", "corpus={name: communication}")
    for line in (
        ("run", str(tmp_path / "tiny.yaml"), *words),
        ("run", str(tmp_path / "tiny.yaml"), *words, "--set", "space.training.method={choice: [edp, dpsgd]}"),
        ("run", str(tmp_path / "tiny.yaml"), *words, *target, *proxy, "--set", "search.plan=proxy"),
        ("train", str(tmp_path / "picked.yaml"), *words),
        ("train", str(tmp_path / "picked.yaml"), *words, "--register", "voice"),
    ):
        code, out, err = command(*line, *storage)
        assert (code, out) == (2, ""), line
        assert err.splitlines()[-1].endswith(REFUSED), line
        assert not (tmp_path / "runs").exists(), line


def test_without_privacy_or_on_a_generated_corpus_they_are_allowed(mine: Path) -> None:
    private = spec(corpus={"name": "mine", "path": str(mine), "utterances": None}).model_copy(
        update={"canaries": CanariesSpec(count=40)}
    )
    assert uncovered(private) == WHY
    plain = private.model_copy(update={"training": private.training.model_copy(update={"method": "sgd"})})
    none = private.model_copy(update={"canaries": CanariesSpec()})
    generated = spec().model_copy(update={"canaries": CanariesSpec(count=40)})
    for allowed in (plain, none, generated, load_recipe("quickstart_paper", ["canaries.count=40"])[1]):
        check_canaries(allowed)
    # A corpus of files is a private one, whatever its name is.
    named = private.model_copy(update={"corpus": private.corpus.model_copy(update={"name": "video"})})
    with pytest.raises(UserError, match=r"canaries.count = 40: "):
        check_canaries(named)


@pytest.mark.slow
def test_a_sweep_with_them_is_readable_and_says_that_no_epsilon_covers_it(
    old: Sweep, tmp_path: Path, command: Command
) -> None:
    storage = ("--storage", str(old.folder.parent))
    for words in (("status", "old"), ("front", "old"), ("list",)):
        code, out, err = command(*words, *storage)
        assert code == 0, err
        assert WHY in " ".join(out.split()), words
    code, out, _ = command("front", "old", *storage, "--json")
    front = json.loads(out)
    assert front["epsilon_of_sweep"] == math.inf
    assert front["epsilon_user_of_sweep"] in (None, math.inf)
    for point in front["front"]:
        metrics = point["metrics"]
        assert (metrics["epsilon"], metrics["gaussian_mu"]) == (math.inf, math.inf)
        assert (metrics["permitted_tpr_at_1pct_fpr"], metrics["permitted_tpr_at_01pct_fpr"]) == (1, 1)
        assert not point["formal_guarantee"]
    assert all(trial.ledger is not None and not trial.ledger.private for trial in old.trials())
    code, out, _ = command("account", "mine", *storage, "--json")
    (account,) = json.loads(out)["corpora"]
    assert account["uncovered"] == [f"old: {WHY}"]
    assert (account["epsilon_of_everything"], account["epsilon_released"]) == (math.inf, 0)
    assert [one["epsilon"] for one in account["activities"]] == [math.inf]
    code, out, err = command("check", "old", "--max-epsilon", "1e9", *storage)
    assert (code, out) == (1, "")
    assert "ε ∞" in err
    write_report(old, tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    assert f"Do not release it: it has no guarantee. {WHY[0].upper()}{WHY[1:]}." in report


@pytest.mark.slow
def test_such_a_sweep_is_not_gone_on_with_registered_or_released(old: Sweep, tmp_path: Path, command: Command) -> None:
    storage, picked = ("--storage", str(old.folder.parent)), tmp_path / "picked.yaml"
    before = {*old.folder.rglob("*"), old.folder / "lock"}
    code, out, err = command("pick", "old", "0", "--register", "voice", "--output", str(picked), *storage)
    assert (code, out) == (2, "")
    assert err == f"edp-sweep: --register = 'voice': trial 0: {WHY}; allowed: a model without canaries\n"
    assert not picked.exists()
    for words in (("confirm", "old"), ("resume", "old", "--trials", "1")):
        code, out, err = command(*words, *storage)
        assert (code, out) == (2, ""), words
        assert REFUSED in err, words
    assert {*old.folder.rglob("*")} <= before
    # Its settings may be trained: the file has no canaries.
    code, out, err = command("pick", "old", "0", "--output", str(picked), *storage)
    assert code == 0, err
    check_canaries(load_config(picked, []))


@pytest.mark.slow
def test_a_final_training_with_them_makes_the_sweep_infinite(mine: Path, tmp_path: Path, command: Command) -> None:
    sweep = sweep_of(tmp_path / "runs", "plain", 1, f"corpus={{name: mine, path: {mine}}}")
    storage = ("--storage", str(tmp_path / "runs"))
    (ledger,) = [trial.ledger for trial in sweep.trials()]
    assert ledger is not None
    folder = tmp_path / "runs" / "train-final"
    write_ledger(ledger, folder)
    write_yaml(sweep.trials()[0].spec.model_copy(update={"canaries": CanariesSpec(count=40)}), folder / "config.yaml")
    assert json.loads(command("front", "plain", *storage, "--json")[1])["epsilon_of_sweep"] < math.inf
    write_origin(folder, Origin(sweep="plain", trial=0, epoch=4))
    assert json.loads(command("front", "plain", *storage, "--json")[1])["epsilon_of_sweep"] == math.inf
    (account,) = json.loads(command("account", "mine", *storage, "--json")[1])["corpora"]
    assert account["uncovered"] == [f"train-final: {WHY}"]
    assert (account["epsilon_released"], account["epsilon_of_everything"]) == (math.inf, math.inf)


@pytest.mark.slow
def test_a_registered_model_with_them_passes_no_limit(tmp_path: Path, command: Command) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    client.create_registered_model("voice")
    for tags in ({"epsilon": "7.5"}, {"epsilon": "7.5", "canaries": "about half of 40"}):
        client.create_model_version("voice", "nowhere", tags=tags)
    storage = ("--storage", str(tmp_path), "--max-epsilon", "8")
    assert command("check", "voice/1", *storage)[0] == 0
    code, _, err = command("check", "voice/2", *storage)
    assert code == 1
    assert "ε ∞" in err


@pytest.mark.slow
def test_of_a_generated_corpus_every_next_step_trains_without_them(tmp_path: Path, command: Command) -> None:
    sweep = sweep_of(tmp_path / "runs", "planted", 2, "canaries.count=40", "canaries.kind=outliers")
    file, storage = tmp_path / "picked.yaml", str(sweep.folder.parent)
    code, out, err = command("pick", "planted", "--storage", storage, "--output", str(file))
    assert code == 0, err
    assert load_config(file, []).canaries == CanariesSpec()
    write_report(sweep, tmp_path / "report.html")
    trials = sweep.trials()
    front = pareto_front(trials, sweep.recipe.search.objectives)
    report = (tmp_path / "report.html").read_text()
    for place in (out, report, next_steps(sweep), run_note(sweep, sweep.recipe, trials, front, "1")):
        lines = re.findall(r"edp-sweep train [^`\n<]*", place)
        assert lines
        assert not any("canaries" in line for line in lines)


def test_the_card_says_that_a_model_was_trained_on_them() -> None:
    planted = spec().model_copy(update={"canaries": CanariesSpec(count=500)})
    metrics: dict[str, Any] = {"ser": 0.25, "mia_auc": 0.53, "epsilon": 7.5, "epsilon_paper": 3.0, "delta": 5e-4}
    card = model_card(planted, metrics, {}, None, None, "train", 100)
    assert "- Warning: about half of 500 canaries, made-up utterances of an audit, are in its training data" in card
    assert "canaries" not in model_card(spec(), metrics, {}, None, None, "train", 100)
    assert "canaries" not in privacy_tags(planted, metrics, None), (
        "the tag of earlier versions, which is over any limit"
    )
