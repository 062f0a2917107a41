"""The report stands alone, says what was measured in the words of the guarantee, and prints."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from dashboards.report.page import write_report
from edp.spec import UserError
from sweeps.config.loading import load_recipe, recipe_names, recipe_text, write_yaml
from sweeps.registry.pick import Wanted, keep
from sweeps.results.account import accounts
from sweeps.results.front import pareto_front
from sweeps.results.recommendation import picked_spec
from sweeps.results.snapshot import Snapshot
from sweeps.store.picks import ORIGIN, RESULT, Origin, Trained
from sweeps.store.records import Point
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_text, number
from tests.conftest import Command
from tests.support.synthetic import sweep_of
from trainables.config import TrialSpec
from trainables.measure.attacks.roc import measure
from trainables.records.files import BrokenFile, write_json


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "demo", 6)


def words(page: Path) -> str:
    """What a reader sees, in one line."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", page.read_text(), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def front_of(sweep: Sweep) -> list[Point]:
    return pareto_front(sweep.trials(), sweep.recipe.search.objectives)


@pytest.mark.slow
def test_it_needs_no_network_and_no_script(sweep: Sweep, tmp_path: Path) -> None:
    write_report(sweep, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "@import" not in page
    assert "url(" not in re.sub(r"url\(#", "", page), "clip paths inside the pictures alone"
    assert page.count("<svg") == 1


@pytest.mark.slow
def test_before_anybody_picked_it_names_the_rules_choice(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = sweep.trials()
    monkeypatch.setattr(Sweep, "trials", lambda self: trials)
    for epsilon, said, advice in (
        (8.0, "Recommended", "Before you release it, decide whether this δ is small enough for so much data."),
        (80.0, "Not recommended, but shown", "Do not release it: it has no guarantee. Its ε is 8"),
    ):
        for point in (point for trial in trials for point in trial.points):
            point.metrics["epsilon"] = epsilon + point.trial / 100
        chosen = write_report(sweep, tmp_path / "report.html")
        text = words(tmp_path / "report.html")
        assert f"{said}: trial {chosen.name}" in text
        assert Snapshot(sweep).recommended().why in text
        assert f"Advice. {advice}" in text
        assert text.count("Advice.") == 1
    assert "No configuration has been picked yet." in text


@pytest.mark.slow
def test_it_says_what_is_guaranteed_to_whom_and_under_which_assumptions(sweep: Sweep, tmp_path: Path) -> None:
    chosen = write_report(sweep, tmp_path / "report.html")
    text = words(tmp_path / "report.html")
    for said in (
        f"honest {epsilon_text(chosen.metrics['epsilon'])} an upper bound, which the mechanism guarantees",
        f"paper {epsilon_text(chosen.metrics['epsilon_paper'])} the claim of the paper's formula",
        "read not read",
        "δ = 0.0005",
        "Unit: one utterance.",
        "one replaced by nothing",
        "Sampling: shuffled epochs",
        "aggregator is trusted",
        "noise is secret : the operating system provided the seed",
        "1,350 training utterances",
        f"all trials composed): {epsilon_text(Snapshot(sweep).epsilon)}",
        f"({chosen.ledger.steps})" if chosen.ledger else "",
    ):
        assert said in text, said


@pytest.mark.slow
def test_it_answers_what_a_review_asks_or_says_that_it_is_open(sweep: Sweep, tmp_path: Path) -> None:
    chosen = write_report(sweep, tmp_path / "report.html")
    assert chosen.ledger is not None
    first = chosen.ledger.entries[0].mechanism
    text = words(tmp_path / "report.html")
    for said in (
        "δ = 0.0005 with 1,350 training utterances: δ·n = 0.68, which is not small: at this δ, publishing 0.68 of the",
        f"{chosen.ledger.steps} noised steps in {chosen.epoch} epochs.",
        f"At most {number(first.sensitivity())} in the sum of 8 clipped gradients",
        "Shuffled epochs, every unit in one step of each. The accounting assumes exactly that",
        f"Open. Not for this configuration; {sweep.command('report', '--verify')} does it.",
        "Open. No: it was turned off, or does not read this mechanism.",
    ):
        assert said in text, said
    asked, opened = (int(re.findall(pattern, text)[0]) for pattern in (r"(\d+) questions of", r"(\d+) are open"))
    assert asked > opened == text.count("Open. ")


@pytest.mark.slow
def test_what_was_measured_of_the_choice_is_kept_and_in_every_later_report(sweep: Sweep, tmp_path: Path) -> None:
    asked: list[TrialSpec] = []
    found = {
        "violations": [{"parameter": "crf.start", "what": "gets gradient and no noise"}],
        "sensitivity": {"declared": 0.25, "measured": 0.125},
        "noise_std": {"declared": 0.5, "measured": 0.625},
        "steps": 7,
    }

    def verify(spec: TrialSpec) -> dict[str, Any]:
        asked.append(spec)
        return found

    page = tmp_path / "report.html"
    chosen = write_report(sweep, page, verify=verify)
    assert asked == [picked_spec(chosen)]
    said = (
        "0.25 declared, at most 0.125 measured; standard deviation of the noise 0.5 and 0.625. crf.start: gets gradient"
    )
    assert said in words(page)
    write_report(sweep, page)
    assert said in words(page)
    assert "Open. Yes, over 7 steps with and without an utterance or user" in words(page), "a violation is no answer"
    assert "Advice. Do not release it: a step of its configuration does not do what its ledger says" in words(page)
    write_report(sweep, page, verify=verify, anew=False)
    assert len(asked) == 1, "it was measured before"
    (chosen.folder / "verified.json").write_text("{}")
    with pytest.raises(BrokenFile, match=r"verified\.json is broken"):
        write_report(sweep, page)
    (chosen.folder / "verified.json").unlink()


def final_training(sweep: Sweep, name: str, point: Point, *, ser: float, at: str, model: str | None = None) -> Path:
    """Leave what a final training of a point's settings leaves."""
    folder = sweep.folder.parent / f"train-{name}"
    shutil.copytree(sweep.trial_folder(point.trial), folder)
    spec = picked_spec(point)
    write_yaml(spec, folder / "config.yaml")
    write_json(folder / ORIGIN, Origin(sweep=sweep.name, trial=point.trial, epoch=point.epoch, model=model))
    metrics = {key: value for key, value in point.metrics.items() if not key.startswith("valid_")}
    trained = Trained(
        at=at,
        run_id=point.run_id,
        metrics=metrics | {"ser": ser},
        trained_on=("train", "valid"),
        examples=1500,
        choice="chosen by hand",
    )
    write_json(folder / RESULT, trained)
    return folder


def registered(sweep: Sweep, uri: str, run_id: str | None, *aliases: str) -> None:
    """Add the version `uri` to the registry, without its files."""
    name, _, number = uri.removeprefix("models:/").rpartition("/")
    client = MlflowClient(sweep.record.tracking_uri, registry_uri=sweep.record.tracking_uri)
    client.create_registered_model(name)
    client.create_model_version(name, source=(sweep.folder / "x").as_uri(), run_id=run_id, tags={"epsilon": "8"})
    for alias in aliases:
        client.set_registered_model_alias(name, alias, number)


@pytest.mark.stress
def test_it_is_about_the_model_that_is_served_and_says_every_epsilon_beside_it(tmp_path: Path) -> None:
    own, page = sweep_of(tmp_path, "own", 3), tmp_path / "report.html"
    point, other = front_of(own)[:2]
    keep(Snapshot(own), point, "", Wanted(tmp_path / "picked.yaml", force=True))
    alone = write_report(own, page)
    assert (alone.folder, "Picked: trial" in words(page)) == (point.folder, True)

    folder = final_training(own, "mine", point, ser=0.0123, at="2990-01-01T00:00:00+00:00", model="models:/voice/1")
    model = write_report(own, page)
    text = words(page)
    assert (model.folder, model.metrics["ser"]) == (folder, 0.0123)
    assert f"Final training: the final training train-mine of trial {point.name}" in text
    assert "trained on train and valid of communication" in text
    assert "Useful: test SER 1.2%" in text
    assert "Guarantees:" in text
    assert "; chosen by hand." in text
    assert "δ = 0.0005 with 1,500 training utterances: δ·n = 0.75, which is not small" in text
    cost = Snapshot(own).epsilon
    assert cost is not None
    (account,) = accounts(tmp_path)
    for row in (
        f"this model {epsilon_text(model.metrics['epsilon'])}",
        f"it and everything beside it in its sweep: all trials and 1 final training composed {epsilon_text(cost)}",
        f"{epsilon_text(account.everything(5e-4))} δ = 0.0005",
    ):
        assert row in text, row

    registered(own, "models:/voice/1", point.run_id, "candidate")
    write_report(own, page)
    assert "Registered: models:/voice/1 @candidate, the final training train-mine" in words(page)

    keep(Snapshot(own), other, "", Wanted(tmp_path / "picked.yaml", force=True))
    final_training(own, "later", other, ser=0.2, at="2999-01-01T00:00:00+00:00")
    assert write_report(own, page).folder.name == "train-later", "the last decision"
    MlflowClient(registry_uri=own.record.tracking_uri).set_registered_model_alias("voice", "champion", "1")
    assert write_report(own, page).folder == folder
    assert words(page).count("Served: models:/voice/1 @candidate @champion") == 1


@pytest.mark.slow
def test_it_measures_clip_and_noise_unless_that_takes_a_minute(
    sweep: Sweep, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []

    def slow(spec: TrialSpec, console: Console, seconds: float | None = None) -> dict[str, Any]:
        limits.append(seconds)
        raise UserError("it would take about 90 s")

    monkeypatch.setattr("sweeps.engine.jobs.verify.verify_with_bar", slow)
    words = ("report", "demo", "--storage", str(sweep.folder.parent), "-o", str(tmp_path / "report.html"))
    code, out, err = command(*words)
    assert (code, limits) == (0, [60.0]), err
    assert "clip and noise were not measured: it would take about 90 s" in err
    assert "wrote" in out
    code, _, err = command(*words, "--verify")
    assert (code, limits) == (2, [60.0, None]), err
    assert command(*words, "--no-verify")[0] == 0
    assert len(limits) == 2


@pytest.mark.slow
def test_attacks_that_were_run_are_drawn_and_tabled(sweep: Sweep, tmp_path: Path) -> None:
    point = write_report(sweep, tmp_path / "before.html")
    assert "no longer available" in words(tmp_path / "before.html")
    rng = np.random.default_rng(2)
    results = [measure(name, rng.normal(0.3, 1, 200), rng.normal(0, 1, 200)) for name in ("shadow", "rmia")]
    point.folder.mkdir(parents=True, exist_ok=True)
    (point.folder / "attacks.json").write_text(
        json.dumps(
            {
                "references": 8,
                "reference_training": "sgd",
                "reference_epochs": 3,
                "attacks": [result.document() for result in results],
                "curves": {result.name: {"fpr": result.fpr, "tpr": result.tpr} for result in results},
            }
        )
    )
    write_report(sweep, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert f"rmia ({results[1].auc:.3f})" in page, "in the picture's legend"
    text = words(tmp_path / "report.html")
    assert f"rmia {results[1].auc:.3f} {results[1].auc_ci[0]:.3f} – {results[1].auc_ci[1]:.3f}" in text
    assert f"{results[1].tpr_at_1pct_fpr:.2%} at {100 * results[1].realised_1pct_fpr:.3g} %" in text
    assert "Compared with 8 reference models trained without privacy (sgd), 3 epochs each." in text
    assert "Extraction: not measured" in text

    permitted = f"a TPR of {100 * point.metrics['permitted_tpr_at_1pct_fpr']:.3g} % at 1 % FPR"
    assert f"The limit of every attack: the ledger permits any attack {permitted}" in text

    document = json.loads((point.folder / "attacks.json").read_text())
    document["curves"]["rmia"]["tpr"][1] = 1e308
    (point.folder / "attacks.json").write_text(json.dumps(document))
    with pytest.raises(BrokenFile, match=r"attacks\.json is broken"):
        write_report(sweep, tmp_path / "report.html")
    (point.folder / "attacks.json").unlink()


@pytest.mark.slow
def test_what_cannot_be_reported_is_refused_in_one_line(sweep: Sweep, tmp_path: Path, command: Command) -> None:
    empty = sweep_of(tmp_path, "empty", 0, tracked=False)
    with pytest.raises(UserError, match="no complete trial"):
        write_report(empty, tmp_path / "report.html")
    storage = str(sweep.folder.parent)
    code, _, err = command("report", "demo", "--storage", storage, "-o", str(tmp_path / "no" / "report.html"))
    assert (code, "--output" in err) == (2, True)
    code, _, err = command("report", "other", "--storage", storage)
    assert (code, "no sweep of this name" in err) == (2, True)
    where = ("--storage", storage, "-o", str(tmp_path / "report.html"))
    code, out, err = command("report", "demo", "--no-verify", *where)
    assert (code, "wrote" in out) == (0, True), err


@pytest.mark.parametrize("name", recipe_names())
def test_the_recipe_that_it_prints_is_one_that_runs(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name, [])[1]
    (tmp_path / "recipe.yaml").write_text(recipe_text(recipe), encoding="utf-8")
    assert load_recipe(str(tmp_path / "recipe.yaml"), [])[1] == recipe
