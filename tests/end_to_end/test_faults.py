"""What may die does die here: the driver, Ray, a trial's process, MLflow, the disk; and the sweep comes to its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from edp.ledger import Ledger
from sweeps.store.sweep import Sweep
from tests.conftest import TINY_RECIPE, Command
from tests.support.disks import small_disk
from tests.support.drivers import Driver, kill, programs
from tests.support.mlflow_server import Server
from tests.support.postgres import postgres_server
from tests.support.waiting import wait_for

# Drivers have their own worker groups; the sweeps of this process share one.
pytestmark = pytest.mark.usefixtures("kept_groups")

EPOCHS, TRIALS = 12, 2
# Half a processor a worker: a driver's group fits beside the one that is kept.
SETTINGS = [
    f"training.epochs={EPOCHS}",
    "training.workers=1",
    "resources.cpus_per_worker=0.5",
    f"search.trials={TRIALS}",
    "search.concurrency=1",  # so that what is killed is the running trial's
    "search.stop=null",
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path)
    yield one
    one.stop()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY_RECIPE)
    return path


@pytest.fixture
def one_sweep(ray_cluster: str, tmp_path: Path, recipe: Path, command: Command) -> Iterator[OneSweep]:
    sweep = OneSweep(ray_cluster, tmp_path, recipe, command)
    yield sweep
    for driver in sweep.drivers:
        driver.kill_everything()


class OneSweep:
    """A sweep of two trials that is driven by several drivers, one after the other."""

    def __init__(self, ray_cluster: str, folder: Path, recipe: Path, command: Command) -> None:
        self._cluster, self._folder, self._recipe, self._command = ray_cluster, folder, recipe, command
        self._where = ("--storage", str(folder / "runs"))
        self.trials = folder / "runs" / "s" / "trials"
        self.tracking_uri = f"sqlite:///{folder / 'mlflow.db'}"
        self.drivers: list[Driver] = []
        self.settings = list(SETTINGS)

    def start(self, own_ray: bool = False) -> Driver:
        """A driver in the middle of the first trial."""
        driver = Driver(self._folder, None if own_ray else self._cluster, *self._run())
        self.drivers.append(driver)
        wait_for(lambda: self.epochs() >= 3 or driver.process.poll() is not None)
        assert driver.process.poll() is None, driver.said()
        return driver

    def run_and_meanwhile(self, do: Callable[[], None]) -> tuple[int, str, str]:
        """Runs it in this process, in whose first trial's middle another thread does what is asked."""

        def later() -> None:
            wait_for(lambda: self.epochs() >= 3)
            do()

        with ThreadPoolExecutor(1) as other:
            done = other.submit(later)
            answer = self._command(*self._run())
            done.result()
        return answer

    def _run(self) -> list[str]:
        settings = [word for setting in self.settings for word in ("--set", setting)]
        return ["run", str(self._recipe), "--name", "s", "--tracking-uri", self.tracking_uri, *settings, *self._where]

    def resume(self) -> tuple[int, str, str]:
        return self._command("resume", "s", *self._where)

    def epochs(self) -> int:
        """Of its trials, those whose metrics are on the disk."""
        return sum(len(json.loads(curve.read_text())) for curve in self.trials.glob("*/curve.json"))

    def is_whole(self) -> None:
        """No trial and no epoch is lost, redone or counted twice: on the disk, in `status`, in MLflow."""
        code, out, err = self._command("status", "s", "--json", *self._where)
        assert code == 0, err
        found = json.loads(out)
        assert [trial["state"] for trial in found["trials"]] == ["complete"] * TRIALS
        for folder in sorted(self.trials.iterdir()):
            assert _steps(folder) == [(epoch, 4) for epoch in range(EPOCHS)]
        assert not list(self.trials.glob("*/checkpoint*")), "their results are kept"
        client = MlflowClient(self.tracking_uri)
        experiment = client.get_experiment_by_name("tiny")
        assert experiment is not None
        runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
        children = [run for run in runs.values() if run.data.tags.get("mlflow.parentRunId") == found["run_id"]]
        assert {run.info.run_id for run in children} == {trial["run_id"] for trial in found["trials"]}
        assert len(children) == TRIALS, "each trial once"
        assert {run.info.status for run in runs.values()} == {"FINISHED"}
        assert len(runs) == TRIALS + 2, "the trials, their parent, the baseline"
        for run in children:
            steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "valid_ser")]
            assert sorted(steps) == list(range(1, EPOCHS + 1))


def _steps(trial: Path) -> list[tuple[int, int]]:
    """The epochs of its ledger, each with its steps: of 54 training utterances, 16 a step, there are 4."""
    ledger = Ledger.model_validate_json((trial / "ledger.json").read_text())
    return [(entry.epoch, entry.steps) for entry in ledger.entries]


def test_a_driver_that_is_killed_lets_its_sweep_go(one_sweep: OneSweep) -> None:
    kept = set(programs(os.getpid(), "ray::RayTrainWorker"))
    driver = one_sweep.start()
    code, _, err = one_sweep.resume()
    assert code == 2
    assert f"is running (process {driver.process.pid} on" in err
    kill(driver.process.pid)
    driver.end()
    wait_for(lambda: kept.issuperset(programs(os.getpid(), "ray::RayTrainWorker")))  # its processors are free
    code, _, err = one_sweep.resume()
    assert code == 0, err
    one_sweep.is_whole()


def test_a_trial_whose_process_is_killed_goes_on_from_its_last_epoch(one_sweep: OneSweep) -> None:
    def kill_it() -> None:
        (trial,) = programs(os.getpid(), "ray::ImplicitFunc")
        kill(trial)

    code, _, err = one_sweep.run_and_meanwhile(kill_it)
    assert code == 0, err
    one_sweep.is_whole()


def test_the_end_of_a_driver_that_is_killed_while_it_writes_it_is_written_by_the_next_command(
    one_sweep: OneSweep, tmp_path: Path
) -> None:
    driver = one_sweep.start()
    sweep = Sweep.existing(tmp_path / "runs", "s")
    wait_for(lambda: sweep.record.state == "finished")
    kill(driver.process.pid)
    driver.end()
    assert sweep.record.end_due, "MLflow did not have it"
    one_sweep.is_whole()
    assert not sweep.record.end_due
    assert (sweep.folder / "front.svg").is_file()


def test_what_mlflow_missed_while_it_was_gone_is_sent_later(one_sweep: OneSweep, server: Server) -> None:
    one_sweep.tracking_uri = server.uri

    def go_and_come_back() -> None:
        server.stop()
        wait_for(lambda: one_sweep.epochs() >= 6)  # it was not told of the last
        server.start()

    code, _, err = one_sweep.run_and_meanwhile(go_and_come_back)
    assert code == 0, err
    assert "MLflow takes nothing at the moment" in err
    code, _, err = one_sweep.resume()
    assert code == 0, err
    one_sweep.is_whole()


def test_a_sweep_waits_for_its_study_in_postgresql_and_stops_if_it_stays_away(
    one_sweep: OneSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.store.study.PATIENCE_S", 16.0)
    with postgres_server() as server:
        one_sweep.settings += [f"search.study={server.url}"]

        def go_come_back_and_go() -> None:
            server.stop()
            time.sleep(5)
            server.start()
            wait_for(lambda: one_sweep.epochs() > EPOCHS)  # the study has heard of the first trial's end
            server.stop()

        code, _, err = one_sweep.run_and_meanwhile(go_come_back_and_go)
        assert code == 1, err
        assert "note: the study's database does not answer: waiting until it does" in err
        assert "trial 0 complete" in err
        assert "the study's database does not answer (" in err.splitlines()[-1]
        assert "go on with: edp-sweep resume s" in err.splitlines()[-1]
        server.start()
        code, _, err = one_sweep.resume()
        assert code == 0, err
        one_sweep.is_whole()


def test_ctrl_c_saves_the_running_epoch_and_says_how_to_go_on(one_sweep: OneSweep) -> None:
    code, _, err = one_sweep.run_and_meanwhile(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert code == 130, err
    assert "stopping when the running epochs have ended and are saved" in err
    assert "go on with: edp-sweep resume s" in err.splitlines()[-1]
    code, _, err = one_sweep.resume()
    assert code == 0, err
    one_sweep.is_whole()


def test_a_driver_whose_ray_dies_says_so_in_one_line_and_ends(one_sweep: OneSweep) -> None:
    driver = one_sweep.start(own_ray=True)
    (raylet,) = programs(driver.process.pid, "/raylet/raylet")
    kill(raylet)
    assert driver.end() == 1
    assert "is gone; go on with: edp-sweep resume s" in driver.said().splitlines()[-1]
    assert "Traceback" not in driver.said()
    code, _, err = one_sweep.resume()
    assert code == 0, err
    one_sweep.is_whole()


def test_ctrl_c_twice_stops_in_the_middle_of_an_epoch_and_says_how_to_go_on(
    ray_cluster: str, tmp_path: Path, recipe: Path
) -> None:
    settings = [word for one in (*SETTINGS, "training.epochs=10000") for word in ("--set", one)]
    driver = Driver(
        tmp_path, ray_cluster, "run", str(recipe), "--name", "s", "--storage", str(tmp_path / "runs"), *settings
    )
    try:
        driver.wait_until("SGD baseline: epoch 2")
        for _ in range(2):
            os.kill(driver.process.pid, signal.SIGINT)
            time.sleep(0.05)
        assert driver.end() == 130, driver.said()
        assert "go on with: edp-sweep resume s" in driver.said().splitlines()[-1]
        assert "Traceback" not in driver.said()
    finally:
        driver.kill_everything()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    with small_disk(tmp_path / "disk", "12m") as place:
        yield place


def test_a_full_disk_stops_the_sweep_in_one_line_and_it_goes_on_when_there_is_room(
    ray_cluster: str, full_disk: Path, recipe: Path, tmp_path: Path, command: Command
) -> None:
    where = ("--storage", str(full_disk), "--tracking-uri", f"sqlite:///{tmp_path / 'mlflow.db'}")
    trials = 9  # the last of them do not fit
    settings = [word for setting in (*SETTINGS, f"search.trials={trials}") for word in ("--set", setting)]
    ballast = full_disk / "ballast"

    code, _, err = command("run", str(recipe), "--name", "s", *where, *settings, "--set", "search.trials=0")
    assert code == 2, err
    free = shutil.disk_usage(full_disk).free
    # Enough for the corpora, the baseline and a trial or two.
    ballast.write_bytes(b"\0" * max(0, free - 3_500_000))
    code, out, err = command("run", str(recipe), "--name", "s", *where, *settings)
    assert code == 1, err
    assert "the disk is full" in err.splitlines()[-1], err
    assert "go on with: edp-sweep resume s" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not list(full_disk.rglob("*.partial"))

    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=256m", str(full_disk)], check=True)
    code, out, err = command("resume", "s", *where, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * trials
    for folder in (full_disk / "s" / "trials").iterdir():
        assert _steps(folder) == [(epoch, 4) for epoch in range(EPOCHS)]
