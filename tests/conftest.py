"""Marks, processes and fixtures of the whole test session: a small Ray cluster, and a recipe that trains in seconds."""

from __future__ import annotations

import contextlib
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
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import requests
import typer
from rich.console import Console
from sqlalchemy import Engine, event
from xdist.scheduler import LoadGroupScheduling

os.environ["OMP_NUM_THREADS"] = "1"
# Hundreds of processes import this project, so keep compiled files even where the environment says not to.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# Ray starts its workers with a low priority. Here they would wait for pytest's other processes and end last.
os.environ.setdefault("RAY_worker_niceness", "0")

from hypothesis import settings

from tests.support import reaper
from tests.support.command_line import commands as all_commands

# The process that distributes the tests runs none, and need not import Ray and torch.
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
training: {epochs: 2, batch_size: 16, micro_batches: 8, workers: 2, learning_rate: 1.0e-2}
search: {trials: 2, seed: 1}
"""
"""A recipe of two workers. One group serves all its sweeps in turn: to start one takes half a minute of a core."""


MARKS = {
    "ray_cluster": {"ray"},
    "own_ray": {"ray", "stress"},
    "chromium": {"browser"},
    "kill": {"stress"},
    "long_story": {"stress"},
    "model_server": {"stress"},
    "tally": {"stress"},
    "tests.support.drivers": {"stress"},
    "tests.support.many_nodes": {"ray", "stress"},
}
"""Marks of a test, by the fixtures that it asks for and by the support modules from which its module imports."""


def _marks(item: pytest.Item) -> set[str]:
    imported = vars(getattr(item, "module", None) or object).values()
    modules = {one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", None) for one in imported}
    return set().union(*(MARKS.get(name, set()) for name in {*modules, *getattr(item, "fixturenames", ())}))


class _RayInItsOwnProcesses(LoadGroupScheduling):
    """Run the tests of a group in one process (`pytest -n 3`: Ray, Ray under stress), and other tests file by file."""

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return _RayInItsOwnProcesses(config, log)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until everything is imported
    if "PYTEST_XDIST_WORKER" not in os.environ:  # whose processes are the session's too
        reaper.start()
        config.pluginmanager.register(_FailuresAtOnce(config))


class _FailuresAtOnce:
    """Print each failure when it happens: a run that is stopped from outside prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            terminal = self._config.get_terminal_writer()
            terminal.line(f"\n{report.nodeid} ({report.when}, {report.duration:.0f} s)\n{report.longreprtext}")
            terminal.flush()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects, and pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by what it uses, and sort: tests of Ray first, and of them those that start their own, while
    pytest's own processes are small: the suite's memory peaks there. Tests that keep a worker group come last of them:
    it holds processors until they end. Those of the tiny sweep, whose group has two workers, are the very last."""
    for item in items:
        for name in (marks := _marks(item)):
            item.add_marker(name)
        if "stress" in marks and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1200))
        if "ray" in marks:
            item.add_marker(pytest.mark.xdist_group("ray stress" if "stress" in marks else "ray"))
    items.sort(key=_order)


def _order(item: pytest.Item) -> tuple[bool, ...]:
    names = getattr(item, "fixturenames", ())
    marks = {mark.name for mark in item.iter_markers()}
    return (
        "ray" not in marks,
        "stress" not in marks,
        "ray_cluster" in names,
        "kept_worker_groups" in names,
        "tiny_sweep" in names,
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _may_start_ray
    _may_start_ray = item.get_closest_marker("ray") is not None
    if not _may_start_ray:
        _end_ray()
    return (yield)


def _end_ray() -> None:
    """End this process' Ray: tests of Ray come first, and later ones would use its processors, or wait for them."""
    if "ray" not in sys.modules or not (ray := sys.modules["ray"]).is_initialized():
        return
    for groups in _kept:
        groups.close()
    with warnings.catch_warnings():  # Ray does not wait for all of its processes
        warnings.simplefilter("ignore", ResourceWarning)
        ray.shutdown()
        gc.collect()


_kept: list[KeptGroups] = []


_may_start_ray = True


def _refuse_ray(event: str, args: tuple) -> None:
    """Raise where a test starts Ray without a fixture from which its mark follows: `make quick` would start it too."""
    if event == "subprocess.Popen" and not _may_start_ray and "gcs_server" in str(args[1]):
        raise AssertionError("this test starts Ray; it must ask for the fixture `ray_cluster` or `own_ray`")


sys.addaudithook(_refuse_ray)


def pytest_collection_finish() -> None:
    """Exempt what was imported from garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def migrated_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run MLflow's fifty migrations of an empty SQLite store once, and copy their result to each later store."""
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
    """Let SQLite not wait for the disk. Tests kill processes, whose writes the system keeps, but no machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(scope="module")
def one_worker() -> Iterator[None]:
    """Make this process a process group of one."""
    from trainables.training.process import alone

    with alone():
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """Start a Ray cluster of three CPUs, two for a kept worker group and one beside it; yield its address."""
    from sweeps.engine.session import connect

    context = connect("local", num_cpus=3)
    yield context.address_info["address"]
    _end_ray()


@pytest.fixture
def own_ray() -> None:
    """Let a test start Ray in a process of its own."""


@pytest.fixture(scope="session")
def long_story() -> None:
    """Let a test take more than five seconds: it trains sweeps of its own, or starts servers, beside the main job."""


@pytest.fixture
def kill() -> Callable[[int, int], None]:
    """Send a signal to a process, for tests that kill what trains."""
    return os.kill


@pytest.fixture(scope="session")
def kept_worker_groups(ray_cluster: str) -> Iterator[KeptGroups]:
    """Keep the worker groups of `kept_groups` for the whole session."""
    from tests.support.kept_groups import KeptGroups

    _kept.append(KeptGroups())
    yield _kept[-1]
    _kept.pop().close()


@pytest.fixture(scope="module")
def kept_groups(kept_worker_groups: KeptGroups) -> Iterator[None]:
    """Share one worker group among all sweeps that ask for an equal one, in all files that use this fixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.engine.session.WorkerGroup", kept_worker_groups.lent)
        yield


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `edp-sweep WORDS…`, or a command of `commands`, here; return exit code, standard output, standard error."""
    from sweeps.commands.app import main

    all_commands()  # imports the modules whose consoles are replaced

    def run(*words: str, commands: typer.Typer | None = None) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["edp-sweep", *words])
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            fresh = Console(file=stream, width=200, markup=False, emoji=False)
            for place, module in list(sys.modules.items()):
                if place.startswith(("sweeps.commands", "dashboards.cli", "tests.benchmarks")) and hasattr(
                    module, name
                ):
                    monkeypatch.setattr(module, name, fresh)
        with pytest.raises(SystemExit) as ended:
            main(commands)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@dataclass(frozen=True)
class TinySweep:
    """A sweep that was really run: `tiny`."""

    storage: Path
    document: dict[str, Any]
    """The output of `run --json`."""
    exported: dict[str, float]
    """The last value of each series that Ray exported to Prometheus, read every second."""


@pytest.fixture(scope="session")
def tiny_sweep(kept_worker_groups: KeptGroups, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinySweep]:
    """Run the one sweep that tests of what comes after a sweep share."""
    from sweeps.commands.app import main

    storage, recipe = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    recipe.write_text(TINY_RECIPE)
    with _scraped() as exported:
        words = ["edp-sweep", "run", str(recipe), "--name", "tiny", "--storage", str(storage), "--json"]
        printed = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
            patch.setattr(sys, "argv", words)
            patch.setattr("sweeps.engine.session.WorkerGroup", kept_worker_groups.lent)
            with pytest.raises(SystemExit) as ended:
                main()
        assert not ended.value.code
        yield TinySweep(storage, json.loads(printed.getvalue()), exported)


@contextlib.contextmanager
def _scraped() -> Iterator[dict[str, float]]:
    import ray

    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    done, found, session = threading.Event(), dict[str, float](), requests.Session()
    session.trust_env = False  # whose variables a test may change meanwhile

    def scrape() -> None:
        while not done.wait(1.0):
            # After Ray's end another program may have its port, and answer in another format.
            with contextlib.suppress(requests.RequestException, ValueError):
                for line in session.get(address, timeout=30).text.splitlines():
                    series, _, value = line.rpartition(" ")
                    if not line.startswith("#"):
                        found[series] = float(value)

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    yield found
    done.set()
    thread.join()
    session.close()
