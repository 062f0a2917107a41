"""A trial that was stopped early states the ε of its plan wherever an ε is shown."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from mlflow.tracking import MlflowClient
from rich.console import Console

from dashboards.report.page import write_report
from edp.accounting.epsilon import epsilon
from sweeps.config.target_epsilon import planned
from sweeps.engine.finish import finish
from sweeps.engine.progress import Progress
from sweeps.registry.card import privacy_tags
from sweeps.results.sweep import load_sweep
from sweeps.store.sweep import Sweep
from sweeps.text.figures import epsilon_text
from sweeps.tracking.tracker import Tracker
from tests.conftest import Command
from tests.support.studies import driver
from tests.support.synthetic import EXAMPLES, figures, sweep_of
from trainables.measure.measuring import privacy_metrics
from trainables.records.epochs import epoch_folder, write_curve, write_ledger
from trainables.records.job import EpochResult, TrialResult

STOPPED, DELTA = 3, 5e-4


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep at ε = 8, whose only trial was stopped after 3 epochs and leaves what the worker writes."""
    storage = tmp_path_factory.mktemp("runs")
    sweep = sweep_of(storage, "one", 0, "edp.epsilon=8", "search.trials=1", state=None)
    tracker = Tracker(sweep.record.tracking_uri, "quickstart_paper", storage / "mlflow-artifacts")
    owner = driver(sweep, sweep.recipe, tracker=tracker, units=EXAMPLES)
    suggestion = owner.suggest("0")["suggestion"]
    plan, folder = planned(suggestion.spec, EXAMPLES), sweep.trial_folder(0)
    ledgers = {t: plan.until(t).completed(plan) for t in range(1, STOPPED + 1)}
    base = figures(sweep.recipe, suggestion.params, np.random.default_rng(0))[0]
    curve = [{"valid_ser": 1 / t, "train_loss": 10 / t} | privacy_metrics(of, DELTA) for t, of in ledgers.items()]
    points = tuple(EpochResult(t, base | privacy_metrics(ledgers[t], DELTA)) for t in (1, STOPPED))
    write_ledger(ledgers[1], epoch_folder(folder, 1))
    write_ledger(ledgers[STOPPED], folder)
    write_curve(curve, folder)
    outcome = TrialResult(points[-1].metrics, ledgers[STOPPED], {}, points, "after 3 epochs dominated")
    for message in (("started", None), *(("epoch", one) for one in enumerate(curve, 1)), ("outcome", outcome)):
        owner.on_trial_result("0", {"message": [message]})
    owner.on_trial_complete("0")
    finish(sweep, sweep.recipe, tracker, "finished", Progress(Console(quiet=True)))
    return sweep


def test_study_records_and_frames(sweep: Sweep) -> None:
    (told,) = sweep.told()
    assert told.user_attrs["state"] == "stopped"
    (trial,) = sweep.trials()
    assert trial.ledger is not None
    assert [metrics["epsilon"] for metrics in (told.user_attrs["metrics"], *(p.metrics for p in trial.points))] == [
        pytest.approx(8, rel=1e-4)
    ] * 3
    assert epsilon(trial.ledger, DELTA) == trial.metrics["epsilon"]
    shown = load_sweep(sweep.name, sweep.storage).get_dataframe("epochs")
    assert set(shown["epsilon"]) == {trial.metrics["epsilon"]}
    assert shown["epsilon_executed"].is_monotonic_increasing
    assert shown["epsilon_executed"].iloc[-1] == epsilon(trial.ledger.executed, DELTA) < 7


@pytest.mark.slow
def test_commands(sweep: Sweep, command: Command) -> None:
    where = ("--storage", str(sweep.folder.parent), "--json")
    _, out, err = command("front", "one", *where)
    front = json.loads(out)
    assert [point["metrics"]["epsilon"] for point in front["front"]] == [pytest.approx(8, rel=1e-4)] * 2, err
    assert front["epsilon_of_sweep"] == pytest.approx(8, rel=1e-4)
    _, out, err = command("account", *where)
    assert json.loads(out)["corpora"][0]["epsilon_of_everything"] == pytest.approx(8, rel=1e-4), err
    _, out, err = command("status", "one", *where)
    assert json.loads(out)["epsilon_of_sweep"] == pytest.approx(8, rel=1e-4), err
    for point in ("0", "0@1"):
        assert command("check", "one", point, "--max-epsilon", "7.9", *where)[0] == 1
        assert command("check", "one", point, "--max-epsilon", "8.001", *where)[0] == 0
    code, out, err = command("pick", "one", "--max-epsilon", "7.9", "--output", str(sweep.folder / "x.yaml"), *where)
    assert code == 2
    code, out, err = command("pick", "one", "--output", str(sweep.folder / "picked.yaml"), *where)
    assert json.loads(out)["metrics"]["epsilon"] == pytest.approx(8, rel=1e-4), err


@pytest.mark.slow
def test_mlflow_card_and_report(sweep: Sweep, tmp_path: Path) -> None:
    (trial,) = sweep.trials()
    client = MlflowClient(sweep.record.tracking_uri)
    assert trial.run_id is not None
    stated, executed = (
        {metric.step: metric.value for metric in client.get_metric_history(trial.run_id, name)}
        for name in ("epsilon", "epsilon_executed")
    )
    assert set(stated) == set(executed) == {1, 2, 3}
    assert set(stated.values()) == {trial.metrics["epsilon"]}
    assert executed[1] < executed[2] < executed[3] < 7
    assert privacy_tags(trial.spec, trial.points[0].metrics, None)["epsilon"] == "8"
    chosen = write_report(sweep, tmp_path / "report.html")
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", (tmp_path / "report.html").read_text())).split())
    assert "honest 8 an upper bound" in page
    assert (
        f"executed {epsilon_text(executed[chosen.epoch])} what the steps that made the weights would guarantee" in page
    )
    assert "ε counts all planned epochs" in page
