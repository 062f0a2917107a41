"""What MLflow shows of a sweep fits into what it takes, however long the front; its links ask for the right runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from mlflow.tracking import MlflowClient

from sweeps.engine.finish import finish
from sweeps.engine.progress import Progress
from sweeps.results.front import pareto_front
from sweeps.results.snapshot import Snapshot
from sweeps.store.sweep import Sweep
from sweeps.tracking.run_note import run_note
from sweeps.tracking.run_tags import NOTE
from sweeps.tracking.tracker import Tracker
from tests.support.synthetic import add_trials, sweep_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep_of(tmp_path_factory.mktemp("runs"), "made", 12)


def described(sweep: Sweep, times: int = 1) -> str:
    found = Snapshot(sweep)
    found.candidates = {f"{name}{i}": one for i in range(times) for name, one in found.candidates.items()}
    return run_note(found, "1")


@pytest.mark.slow
def test_a_long_front_has_few_rows_spread_over_it(sweep: Sweep) -> None:
    long = described(sweep, times=50)
    assert len([line for line in long.splitlines() if re.match(r"\| ◇?\d", line)]) == 8
    assert len(long) < 8000


@pytest.mark.slow
def test_the_note_shows_the_picture_of_the_front(sweep: Sweep, tmp_path: Path) -> None:
    client = MlflowClient(sweep.record.tracking_uri)
    (address,) = re.findall(r"!\[the front\]\((.*?)\)", client.get_run(sweep.record.run_id).data.tags[NOTE])
    asked = {name: one for name, (one,) in parse_qs(urlsplit(address).query).items()}
    assert (urlsplit(address).path, asked["run_uuid"]) == ("get-artifact", sweep.record.run_id)
    picture = Path(client.download_artifacts(sweep.record.run_id, asked["path"], str(tmp_path)))
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_links_find_exactly_the_front_the_trials_and_what_was_picked(sweep: Sweep) -> None:
    client = MlflowClient(sweep.record.tracking_uri)
    run = client.get_run(sweep.record.run_id)
    text = run.data.tags["mlflow.note.content"]
    front = {point.run_id for point in pareto_front(sweep.trials(), sweep.recipe.search.objectives)}
    experiment = client.get_experiment(run.info.experiment_id)
    expected = {"the front": front, "all trials": {t.run_id for t in sweep.trials()}, "what was picked": set()}
    for words, runs in expected.items():
        (address,) = re.findall(rf"\[{words}\]\(#(.*?)\)", text)
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert urlsplit(address).path == f"/experiments/{experiment.experiment_id}/runs"
        if "viewStateShareKey" in query:
            query = json.loads(experiment.tags[f"mlflow.sharedViewState.{query['viewStateShareKey']}"])
            assert {"metrics.`valid_ser`", "metrics.`valid_mia_auc`", "params.`z0`"} < set(query["selectedColumns"])
        found = client.search_runs(
            [experiment.experiment_id], query["searchFilter"], order_by=[f"{query['orderByKey']} ASC"]
        )
        assert {r.info.run_id for r in found} == runs, words
        sers = [r.data.metrics["valid_ser"] for r in found]
        assert sers == sorted(sers)
        keys = {frozenset(r.data.params) for r in found}
        assert len(keys) <= 1, "the same parameters on every trial, or the parallel coordinates drop them"


@pytest.mark.stress
def test_a_trial_that_others_have_beaten_since_is_no_longer_tagged_as_pareto(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "grows", 3)
    client = MlflowClient(sweep.record.tracking_uri)

    def tagged() -> set[str]:
        experiment = client.get_run(sweep.record.run_id).info.experiment_id
        return {r.info.run_id for r in client.search_runs([experiment], "tags.pareto = 'true'")}

    before = tagged()
    tracker = Tracker(sweep.record.tracking_uri, sweep.record.recipe, tmp_path / "mlflow-artifacts")
    add_trials(sweep, 12, tracker)
    from sweeps.commands.console import err

    finish(sweep, sweep.recipe, tracker, "finished", Progress(err))
    front = {point.run_id for point in pareto_front(sweep.trials(), sweep.recipe.search.objectives)}
    assert before - front, "this case needs a trial that left the front"
    assert tagged() == front
