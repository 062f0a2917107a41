"""The whole path for real: recipe, Tune, TorchTrainer with gloo workers, hook, MLflow, front, pick, train."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from mlflow.tracking import MlflowClient

from edp.accounting.epsilon import epsilon, epsilon_paper
from edp.ledger import Ledger
from tests.conftest import TINY_RECIPE, Command, TinySweep
from tests.support.grafana import ONLY_WITH_A_GPU, named_metrics
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("kept_groups")


@pytest.fixture(scope="module")
def storage(tiny_sweep: TinySweep) -> Path:
    return tiny_sweep.storage


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    path.write_text(TINY_RECIPE)
    return path


@pytest.fixture
def swept(tiny_sweep: TinySweep) -> dict[str, Any]:
    """What `run --json` printed of the sweep `tiny`."""
    return tiny_sweep.document


@pytest.fixture
def exported(tiny_sweep: TinySweep) -> dict[str, float]:
    return tiny_sweep.exported


def test_a_sweep_tracks_every_trial_once_under_one_parent(swept: dict[str, Any], storage: Path) -> None:
    assert swept["sweep"] == "tiny"
    assert swept["state"] == "finished"
    assert [t["number"] for t in swept["trials"]] == [0, 1]
    client = MlflowClient(swept["tracking_uri"])
    experiment = client.get_experiment_by_name("tiny")
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    children = [r for r in runs.values() if r.data.tags.get("mlflow.parentRunId") == swept["run_id"]]
    assert {r.info.run_id for r in children} == {t["run_id"] for t in swept["trials"]}
    assert len(runs) == 4, "two trials, their parent, the baseline"
    for run in runs.values():
        assert run.info.status == "FINISHED"
    for trial in swept["trials"]:
        run = runs[trial["run_id"]]
        assert trial["state"] == "complete"
        for metric in ("ser", "intent_accuracy", "slot_f1", "mia_auc", "epsilon", "epsilon_paper", "seconds_per_epoch"):
            assert run.data.metrics[metric] == pytest.approx(trial["metrics"][metric])
        assert run.data.params["decay"] == trial["params"]["decay"]
        assert float(run.data.params["tau"]) == trial["params"]["tau"]
        assert {"corpus", "model", "method", "version.torch", "state"} <= set(run.data.tags)
        artifacts = {f.path for f in client.list_artifacts(run.info.run_id)}
        assert artifacts - {"served_model"} == {"config.yaml", "ledger.json", "model"}, "but for what a test registered"
        assert "no formal guarantee" in run.data.tags["privacy"] or "-DP for one utterance" in run.data.tags["privacy"]
        for name in ("valid_ser", "system/worker_cpu_percent", "system/worker_memory_mib"):
            steps = client.get_metric_history(run.info.run_id, name)
            assert [m.step for m in steps] == [1, 2]
            assert all(m.value > 0 for m in steps)
    assert {f.path for f in client.list_artifacts(swept["run_id"])} == {"recipe.yaml", "front.svg", "front.png"}
    assert runs[swept["run_id"]].data.tags["mlflow.note.content"].count("| SGD |") == 1
    assert runs[swept["baseline"]["run_id"]].data.tags["role"] == "baseline"
    assert swept["baseline"]["epsilon"] == math.inf


def test_the_numbers_are_those_of_the_ledgers_that_were_executed(swept: dict[str, Any], storage: Path) -> None:
    for trial in swept["trials"]:
        ledger = Ledger.model_validate_json(
            (storage / "tiny" / "trials" / str(trial["number"]) / "ledger.json").read_text()
        )
        # 54 training utterances, 16 a step: four steps in each of two epochs.
        assert [(entry.epoch, entry.steps) for entry in ledger.entries] == [(0, 4), (1, 4)]
        assert {entry.mechanism.C for entry in ledger.entries} == {trial["params"]["C"]}
        assert {entry.mechanism.N for entry in ledger.entries} == {8}
        assert trial["metrics"]["epsilon"] == pytest.approx(epsilon(ledger, 5e-4))
        assert trial["metrics"]["epsilon_paper"] == pytest.approx(epsilon_paper(ledger, 5e-4))
        assert 0 <= trial["metrics"]["mia_auc"] <= 1
    assert swept["epsilon_of_sweep"] > max(t["metrics"]["epsilon"] for t in swept["trials"])


def test_front_pick_and_train_go_on_from_there(
    swept: dict[str, Any], storage: Path, tmp_path: Path, command: Command
) -> None:
    where = ("--storage", str(storage))
    code, out, _ = command("front", "tiny", "--json", *where)
    front = json.loads(out)
    assert code == 0
    assert list(dict.fromkeys(t["number"] for t in front["front"])) == swept["front"]
    assert front["epsilon_of_sweep"] == swept["epsilon_of_sweep"]

    picked = tmp_path / "picked.yaml"
    code, out, err = command("pick", "tiny", "--output", str(picked), "--register", "helper", "--json", *where)
    assert code == 0, err
    chosen = json.loads(out)
    assert chosen["model"] == {"name": "helper", "version": 1, "uri": "models:/helper/1"}
    assert chosen["number"] in swept["front"]
    run = MlflowClient(swept["tracking_uri"]).get_run(chosen["run_id"])
    assert run.data.tags["picked"] == "true"
    assert run.data.tags["pareto"] == "true"

    # Again, and as the final model: on the validation split too.
    words = ("--on", "train+valid", "--register", "final")
    code, out, err = command("train", str(picked), *words, "--json", *where)
    assert code == 0, err
    trained = json.loads(out)
    assert trained["metrics"]["epsilon"] == pytest.approx(chosen["metrics"]["epsilon"])
    assert trained["formal_guarantee"] is chosen["formal_guarantee"] is (trained["metrics"]["epsilon"] < 1e4)
    assert Ledger.model_validate(trained["ledger"]).steps == 4 * chosen["epoch"]
    client = MlflowClient(swept["tracking_uri"])
    run = client.get_run(trained["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.tags["trained_on"] == "train+valid"
    assert not [name for name in run.data.metrics if name.startswith("valid_")]
    assert "validation SER" not in err
    assert float(client.get_model_version("final", "1").tags["epsilon"]) == pytest.approx(
        trained["metrics"]["epsilon"], rel=1e-5
    )


@pytest.mark.stress
def test_refused_trials_are_tracked_with_the_reason_and_cost_nothing(
    ray_cluster: str, recipe: Path, tmp_path: Path, command: Command
) -> None:
    storage, settings = tmp_path, ["epsilon_budget=5000", "search.sampler=random", "search.trials=1", "search.seed=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    code, out, err = command("run", str(recipe), "--name", "bounded", "--storage", str(storage), "--json", *words)
    assert code == 0, err
    found = json.loads(out)
    states = [trial["state"] for trial in found["trials"]]
    assert states.count("complete") == 1
    assert states.count("refused") >= 1
    client = MlflowClient(found["tracking_uri"])
    for trial in found["trials"]:
        tags = client.get_run(trial["run_id"]).data.tags
        assert tags["state"] == trial["state"]
        assert tags["mlflow.parentRunId"] == found["run_id"]
        if trial["state"] == "refused":
            assert trial["metrics"] == {}
            assert "over the budget of 5000" in trial["reason"]
            assert tags["reason"] == trial["reason"]
        else:
            assert trial["metrics"]["epsilon"] <= 5000

    more = [*("resume", "bounded", "--trials", "1", "--storage", str(storage)), "--json"]
    code, out, err = command(*more)
    assert code == 0, err
    longer = json.loads(out)
    assert longer["trials"][: len(found["trials"])] == found["trials"], "what has run stays as it was"
    assert [trial["state"] for trial in longer["trials"]].count("complete") == 2
    assert longer["epsilon_of_sweep"] > found["epsilon_of_sweep"], "the ε of the choice composes on"
    assert client.get_run(found["run_id"]).info.status == "FINISHED"


def test_a_registered_model_is_served(
    swept: dict[str, Any],
    storage: Path,
    tmp_path: Path,
    command: Command,
    model_server: Callable[[str, str, Path], AbstractContextManager[str]],
) -> None:
    where = ("--storage", str(storage))
    picked = str(tmp_path / "picked.yaml")
    code, out, err = command("pick", "tiny", "--output", picked, "--register", "served", "--json", *where)
    assert code == 0, err
    chosen = json.loads(out)
    client = MlflowClient(swept["tracking_uri"])
    candidate = client.get_model_version("served", chosen["model"]["version"]).tags["logged_model"]
    tags = client.get_logged_model(candidate).tags
    assert tags["trial"] == str(chosen["number"])
    assert json.loads(tags["mlflow.modelVersions"]) == [{"name": "served", "version": "1"}]
    with model_server(chosen["model"]["uri"], swept["tracking_uri"], tmp_path) as address:
        answer = requests.post(f"{address}/invocations", json={"inputs": ["call my mother", "remind me"]}, timeout=60)
        assert answer.status_code == 200, answer.text
        one, two = answer.json()["predictions"]
        assert one["utterance"] == "call my mother"
        saved = torch.load(storage / "tiny" / "trials" / str(chosen["number"]) / "model.pt", weights_only=True)
        assert {one["intent"], two["intent"]} <= set(saved["labels"]["intents"])
        assert 0 < one["intent_score"] <= 1
        partly = requests.post(f"{address}/invocations", json={"inputs": ["call", " "]}, timeout=60)
        assert partly.status_code == 200, partly.text
        answered, blank = partly.json()["predictions"]
        assert answered["intent"] in saved["labels"]["intents"]
        assert blank["intent"] is None
        assert blank["reason"]


def test_every_metric_of_the_grafana_dashboard_is_exported(swept: dict[str, Any], exported: dict[str, float]) -> None:
    for _ in range(60):  # Ray exports every ten seconds; the last values come after the sweep's end
        if any('state="complete"' in series and value == 2 for series, value in exported.items()):
            break
        time.sleep(0.5)
    # GPU-seconds are none on a machine without a GPU, and a counter that never counted is not exported.
    wanted = named_metrics() - ONLY_WITH_A_GPU - {"ray_edp_sweep_gpu_seconds_total"}
    assert wanted <= {series.partition("{")[0] for series in exported}
    assert _exported(exported, "ray_edp_sweep_epochs_total", sweep="tiny") == 4, "two trials of two epochs"
    assert _exported(exported, "ray_edp_sweep_trials", sweep="tiny", state="complete") == 2
    assert _exported(exported, "ray_edp_sweep_trials_to_go", sweep="tiny") == 0
    best = min(trial["metrics"]["valid_ser"] for trial in swept["trials"])
    assert _exported(exported, "ray_edp_sweep_best", sweep="tiny", objective="ser") == pytest.approx(best)


def _exported(exported: dict[str, float], name: str, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    found = [v for series, v in exported.items() if series.startswith(name + "{") and all(w in series for w in wanted)]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_the_front_is_trained_again_with_new_seeds_once(swept: dict[str, Any], storage: Path, command: Command) -> None:
    words = ("confirm", "tiny", "--seeds", "2", "--storage", str(storage), "--json")
    code, out, err = command(*words)
    assert code == 0, err
    found = json.loads(out)
    assert found["failures"] == []
    client = MlflowClient(swept["tracking_uri"])
    for point in found["points"]:
        assert [run["seed"] for run in point["runs"]] == [1, 2]
        assert len({run["metrics"]["ser"] for run in point["runs"]} | {point["metrics"]["ser"]}) > 1
        ser = point["confirmed"]["ser"]
        assert ser["mean"] == pytest.approx(sum(run["metrics"]["ser"] for run in point["runs"]) / 2)
        assert ser["lower"] <= ser["mean"] <= ser["upper"]
        # The same mechanism costs the same. A point of an earlier epoch states the plan of its whole training.
        assert point["confirmed"]["epsilon"]["mean"] <= point["metrics"]["epsilon"] * (1 + 1e-6)
        for run in point["runs"]:
            tracked = client.get_run(run["run_id"])
            between = client.get_run(tracked.data.tags["mlflow.parentRunId"])
            assert between.data.tags["mlflow.parentRunId"] == swept["run_id"]
            assert between.data.tags["role"] == "confirmation"
            assert between.info.status == "FINISHED"
            assert tracked.data.tags["role"] == "confirm"
            assert tracked.info.status == "FINISHED"
            assert run["formal_guarantee"] is point["formal_guarantee"]
    assert found["epsilon_of_sweep_and_confirmation"] > swept["epsilon_of_sweep"]
    code, out, err = command(*words)
    assert code == 0, err
    assert json.loads(out) == found, "what was trained stays"
    assert "0 of" in err
    children = client.search_runs(
        [client.get_run(swept["run_id"]).info.experiment_id], f"tags.`mlflow.parentRunId` = '{swept['run_id']}'"
    )
    roles = Counter(run.data.tags["role"] for run in children)
    assert roles == {"trial": len(swept["trials"]), "confirmation": 1}, "the sweep's own stay its trials"


@pytest.fixture
def model_server() -> Callable[[str, str, Path], AbstractContextManager[str]]:
    return server


@contextmanager
def server(model: str, tracking_uri: str, folder: Path) -> Iterator[str]:
    """`mlflow models serve`, on a free port of this machine, for as long as the context lasts; its address."""
    port = free_port()
    words = ["models", "serve", "-m", model, "--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "server.log"
    # From a folder without our code: what the server needs goes with the model.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *words],
            env=clean | {"MLFLOW_TRACKING_URI": tracking_uri, "PATH": path},
            cwd=folder,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            while process.poll() is None:
                with suppress(requests.RequestException):
                    if requests.get(f"{address}/ping", timeout=5).ok:
                        break
                time.sleep(0.2)
            assert process.poll() is None, log.read_text()
            yield address
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
