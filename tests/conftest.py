"""What the whole test session shares: one small Ray cluster, and a recipe that trains in seconds."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
from rich.console import Console
from sqlalchemy import Engine, event
from xdist.scheduler import LoadScopeScheduling

os.environ["OMP_NUM_THREADS"] = "1"
# Hundreds of processes import this project: compiled once, also where the environment keeps nothing compiled.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# Ray's workers are nice to others, which are pytest's other processes here: the lanes that last longest would wait.
os.environ.setdefault("RAY_worker_niceness", "0")

from hypothesis import settings

from tests.support import reaper

# What runs no test, as the process that hands them out, need not wait seconds for Ray and torch.
if TYPE_CHECKING:
    from tests.support.kept_groups import KeptGroups

settings.register_profile("untimed", deadline=None)  # no test depends on how long something takes
settings.load_profile("untimed")

TINY_RECIPE = """
description: a sweep of seconds
corpus: {name: communication, utterances: 120}
model:
  kind: clc
  embeddings: {corpus: {name: health, utterances: 60}, epochs: 1}
  embedding_size: 12
  hidden_size: 12
  layers: 1
  char_filters: 8
shadow: {corpus: {name: video, utterances: 120}, epochs: 1}
training: {epochs: 2, batch_size: 16, micro_batches: 8, workers: 8, learning_rate: 1.0e-2}
search: {trials: 2, seed: 1}
"""


class _RayInTwoProcesses(LoadScopeScheduling):
    """For `pytest -n 3`: files that start Ray and mostly wait for time-outs in one process, other files that start Ray
    in another, and all that do not, file after file, beside them."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return {_WAITS: "ray that waits", _RAY: "ray"}.get(_lane(self.config.rootpath / file), file)


_WAITS, _RAY, _NO_RAY = range(3)


@functools.cache
def _lane(file: Path) -> int:
    text = file.read_text()
    if "pytest.mark.ray" not in text:
        return _NO_RAY
    return _WAITS if "pytest.mark.timeout(1200)" in text else _RAY


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    config.option.loadscopereorder = False  # the two of Ray first, though others hold more tests: they last longest
    return _RayInTwoProcesses(config, log)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until everything is imported
    if "PYTEST_XDIST_WORKER" not in os.environ:  # whose processes are the session's too
        reaper.start()
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    """What fails is told when it does: a run that is stopped from outside prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.get_terminal_writer()
            terminal.line(f"\n{report.nodeid} ({report.when}, {report.duration:.0f} s)\n{report.longreprtext}")
            terminal.flush()


@functools.cache
def _keeps_groups(file: Path) -> bool:
    return "kept_groups" in file.read_text()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray first, and of it the test of most processes, while pytest's own are small: the suite's memory peaks there.
    Files that keep a worker group come last: it holds processors until they end."""
    items.sort(key=lambda item: (_lane(item.path), "test_many_nodes" not in item.nodeid, _keeps_groups(item.path)))


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look through it again and again."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow's empty tables in SQLite: made by its own fifty migrations once, and copied to each store after that."""
    from mlflow.store.db import utils as stores

    make, first = stores._initialize_tables, tmp_path_factory.mktemp("mlflow") / "first.db"

    def copied(engine: Engine) -> None:
        if engine.dialect.name != "sqlite" or not stores._is_empty_database(engine):
            return make(engine)
        if not first.is_file():
            make(engine)
            with (
                contextlib.closing(engine.raw_connection()) as source,
                contextlib.closing(sqlite3.connect(first)) as to,
            ):
                source.driver_connection.backup(to)
        else:
            with (
                contextlib.closing(sqlite3.connect(first)) as source,
                contextlib.closing(engine.raw_connection()) as to,
            ):
                source.backup(to.driver_connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "_initialize_tables", copied)
        patch.setattr("mlflow.store.model_registry.sqlalchemy_store._initialize_tables", copied)
        yield


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _: Any) -> None:
    """SQLite does not wait for the disk: tests kill processes, whose writes the system has, and no machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(scope="module")
def one_worker() -> Iterator[None]:
    """A process group of this process."""
    from trainables.training.alone import alone

    with alone():
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """A Ray cluster of two CPUs in this process; its address."""
    import ray

    from sweeps.execution.session import connect

    context = connect("local", num_cpus=2)
    yield context.address_info["address"]
    with warnings.catch_warnings():  # Ray does not wait for all of its processes
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
        gc.collect()


@pytest.fixture(scope="session")
def kept_worker_groups(ray_cluster: str) -> Iterator[KeptGroups]:
    """Those of `kept_groups`."""
    from tests.support.kept_groups import KeptGroups

    groups = KeptGroups()
    yield groups
    groups.close()


@pytest.fixture(scope="module")
def kept_groups(kept_worker_groups: KeptGroups) -> Iterator[None]:
    """One worker group for all sweeps of such files that ask for the same, with what they leave in its processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.execution.session.WorkerGroup", kept_worker_groups.lent)
        yield


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `edp-sweep WORDS…` in this process; gives its exit code, standard output and standard error."""
    from dashboards.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["edp-sweep", *words])
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            fresh = Console(file=stream, width=200, markup=False, emoji=False)
            for place, module in list(sys.modules.items()):
                if place.startswith(("sweeps.commands", "dashboards.cli")) and hasattr(module, name):
                    monkeypatch.setattr(module, name, fresh)
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@dataclass(frozen=True)
class TinySweep:
    """A sweep that was really run: `tiny`, with eight workers."""

    storage: Path
    document: dict[str, Any]
    """What `run --json` printed."""
    exported: dict[str, float]
    """Each series' last value of what Ray exports to Prometheus, read every second since before the sweep."""


@pytest.fixture(scope="session")
def tiny_sweep(kept_worker_groups: KeptGroups, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinySweep]:
    """The one sweep that tests of whatever comes after a sweep share."""
    from dashboards.cli import main

    kept_worker_groups.close()  # eight workers need all processors
    storage, recipe = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    with _scraped() as exported:
        words = ["edp-sweep", "run", str(recipe), "--name", "tiny", "--storage", str(storage), "--json"]
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr(sys, "argv", words)
            with pytest.raises(SystemExit) as ended:
                main()
        assert not ended.value.code
        yield TinySweep(storage, json.loads(printed.getvalue()), exported)


@contextlib.contextmanager
def _scraped() -> Iterator[dict[str, float]]:
    import ray

    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    done, found = threading.Event(), dict[str, float]()

    def scrape() -> None:
        while not done.wait(1.0):
            # Once this Ray is shut down, whoever has its port may answer, and in other words than Prometheus'.
            with contextlib.suppress(requests.RequestException, ValueError):
                for line in requests.get(address, timeout=30).text.splitlines():
                    series, _, value = line.rpartition(" ")
                    if not line.startswith("#"):
                        found[series] = float(value)

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    yield found
    done.set()
    thread.join()
