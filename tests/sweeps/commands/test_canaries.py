"""A model that was trained on canaries is not registered without a word, and what comes next leaves them out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dashboards.report.page import write_report
from edp.spec import UserError
from sweeps.commands.pick import Wanted, objection, pick_point
from sweeps.commands.run import next_steps
from sweeps.config.loading import load_config, write_yaml
from sweeps.registry.card import model_card, privacy_tags
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import named_point
from sweeps.store.storage import train_line
from sweeps.store.sweep import Sweep
from sweeps.tracking.run_note import run_note
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from tests.support.tiny import spec
from trainables.config import CanariesSpec


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "planted", 2, "canaries.count=40", "canaries.kind=outliers")


@pytest.mark.slow
def test_every_next_step_trains_the_final_model_without_them(sweep: Sweep, tmp_path: Path, command: Command) -> None:
    file, storage = tmp_path / "picked.yaml", str(sweep.folder.parent)
    code, out, err = command("pick", "planted", "--storage", storage, "--output", str(file))
    assert code == 0, err
    write_report(sweep, tmp_path / "report.html")
    trials = sweep.trials()
    front = pareto_front(trials, sweep.recipe.search.objectives)
    places = (
        out,
        file.read_text(),
        (tmp_path / "report.html").read_text(),
        next_steps(sweep),
        run_note(sweep, sweep.recipe, trials, front, "1"),
    )
    for place in places:
        lines = re.findall(r"edp-sweep train [^`\n<]*", place)
        assert lines
        plain = [line for line in lines if "--set canaries.count=0 --set canaries.kind=values" not in line]
        assert all("# with the canaries of the audit" in line for line in plain), "which repeats the trial, and says so"
    words = re.search(r"train it with: edp-sweep train \S+ (.*)", out)
    assert words is not None
    settings = re.findall(r"--set (\S+)", words[1])
    assert load_config(file, settings).canaries == CanariesSpec(), "the line is one that runs"
    assert "About half of 40 canaries were in its training data; the next line leaves them out." in file.read_text()
    report = (tmp_path / "report.html").read_text()
    assert "<strong>Advice.</strong> Do not" in report


def test_without_canaries_nothing_is_left_out(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    line = train_line("picked.yaml", canaries=CanariesSpec(), storage=tmp_path, tracking_uri=uri)
    assert "--set" not in line


@pytest.mark.slow
def test_pick_asks_before_it_registers_such_a_model(sweep: Sweep, tmp_path: Path) -> None:
    point = named_point(sweep, "0")
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(UserError, match=r"about half of 40 canaries, made-up utterances of an audit.* not registered"):
        pick_point(sweep, {}, Wanted(tmp_path / "picked.yaml", "voice"), "0", no)
    (question,) = asked
    assert "--set canaries.count=0" in question
    assert ("has no guarantee" in question) == (point.metrics["epsilon"] > 10)
    assert not (tmp_path / "picked.yaml").exists()
    pick_point(sweep, {}, Wanted(tmp_path / "picked.yaml"), "0", no)
    assert len(asked) == 1, "a configuration is no model"
    plain = sweep_of(tmp_path / "plain", "plain", 1, "edp.epsilon=8", tracked=False)
    point = named_point(plain, "0")
    point.metrics["epsilon"] = 8.0
    assert objection(plain, point) is None


def test_train_asks_before_it_trains_a_model_to_register(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_yaml(spec(), tmp_path / "picked.yaml")
    storage = ("--storage", str(tmp_path / "runs"))
    asked: list[Any] = []
    monkeypatch.setattr("sweeps.commands.train.ask_to_register", lambda words: bool(asked.append(words)))
    words = ("train", str(tmp_path / "picked.yaml"), "--set", "canaries.count=12", "--register", "voice", *storage)
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert "canaries.count = 12; nothing was trained" in err
    assert "about half of 12 canaries" in asked[0]
    assert not (tmp_path / "runs").exists()


def test_the_card_and_the_version_say_so() -> None:
    planted = spec().model_copy(update={"canaries": CanariesSpec(count=500)})
    metrics = {"ser": 0.25, "mia_auc": 0.53, "epsilon": 7.5, "epsilon_paper": 3.0, "delta": 5e-4}
    card = model_card(planted, metrics, {}, None, None, "train", 100)
    assert "- Warning: about half of 500 canaries, made-up utterances of an audit, are in its training data" in card
    assert privacy_tags(planted, metrics, None)["canaries"] == "about half of 500"
    assert "canaries" not in model_card(spec(), metrics, {}, None, None, "train", 100)
    assert "canaries" not in privacy_tags(spec(), metrics, None)
