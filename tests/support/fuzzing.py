"""`edp-sweep` as a fuzzer runs it: in this process, up to where hours of work would begin; nothing else is replaced."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from mlflow.store.model_registry import sqlalchemy_store as registry_store
from mlflow.store.tracking import sqlalchemy_store as tracking_store
from mlflow.tracking import _model_registry, _tracking_service
from optuna.storages._rdb.storage import _VersionManager
from rich.console import Console

from tests.support.command_line import commands

EXAMPLES = int(os.environ.get("EDP_FUZZ", "0"))
"""How many inputs to try, where more are wanted than in CI."""


class Began(BaseException):
    """A command that has got past all its refusals."""


def begin(*args: Any, **options: Any) -> NoReturn:
    raise Began


_FENCES = ("ray.init", "dashboards.serve.mlflow_ui", "trainables.corpora.public._download")


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Commands end where work begins; gives an empty working folder. No download, no shared data, a log of its own."""
    commands()  # imports the modules that are patched
    with pytest.MonkeyPatch.context() as patch:
        for place in _FENCES:
            patch.setattr(place, begin)
        # Where other tests have started Ray in this process, a command would join it, train, and shut it down.
        patch.setattr("ray.is_initialized", lambda: False)
        patch.setattr("ray.shutdown", lambda: None)
        # Optuna reads all its migrations anew for each study that is opened: most of the rest.
        head: list[str] = []
        read = _VersionManager.get_head_version

        def get_head_version(own: _VersionManager) -> str:
            if not head:
                head.append(read(own))
            return head[0]

        patch.setattr(_VersionManager, "get_head_version", get_head_version)
        here = tmp_path_factory.mktemp("here")
        patch.chdir(here)
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "EDP_DATA_DIR"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield here


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is None where it got to where work begins."""

    words: tuple[str, ...]
    code: int | None
    out: str
    err: str

    @property
    def how(self) -> str:
        return "work would begin" if self.code is None else f"exit code {self.code}"

    def check(self) -> Ended:
        """What holds of every command, whatever it was given.

        Raises:
            AssertionError: with the words.
        """
        for text in (self.out, self.err):
            assert "Traceback" not in text, self
            assert "this is a bug" not in text, self
            assert "SeCrEt" not in text, self
        assert self.code in (None, 0, 1, 2), self
        if self.code == 2:
            last = self.err.splitlines()[-1:] or [f"edp-sweep: {self.out}"]  # words that are missing: the help
            assert last[0].startswith("edp-sweep: "), self
            assert len(last[0]) < 5_000, self
        return self


@functools.cache
def _with_consoles() -> list[ModuleType]:
    own = [module for name, module in sys.modules.items() if name.startswith(("sweeps.commands", "dashboards.cli"))]
    return [module for module in own if hasattr(module, "out") or hasattr(module, "err")]


def _forget_stores() -> None:
    """MLflow keeps connections to each store's file, also when another one stands in its place."""
    for registry in (
        _tracking_service.registry.TrackingStoreRegistry,
        _model_registry.registry.ModelRegistryStoreRegistry,
    ):
        registry._get_store_with_resolved_uri.cache_clear()
    for store in (tracking_store.SqlAlchemyStore, registry_store.SqlAlchemyStore):
        for engine in store._engine_map.values():
            engine.dispose()
        store._engine_map.clear()


def run_line(*words: str) -> Ended:
    """Runs `edp-sweep WORDS…`; what it prints is caught."""
    from sweeps.commands.app import main

    code: int | None = None
    streams = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["edp-sweep", *words])
        for name, stream in zip(("out", "err"), streams, strict=True):
            fresh = Console(file=stream, width=200, markup=False, emoji=False)
            for module in _with_consoles():
                patch.setattr(module, name, fresh, raising=False)
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                main()
            except SystemExit as ended:
                code = int(ended.code or 0)
            except Began:
                pass
    _forget_stores()
    return Ended(words, code, streams[0].getvalue(), streams[1].getvalue())


@contextlib.contextmanager
def tried(tally: Counter[str], what: object) -> Iterator[None]:
    """Where many are tried, one that fails is told and counted, and the others are tried all the same."""
    try:
        yield
    except Exception as error:
        if not EXAMPLES:
            raise
        tally["failed"] += 1
        print(f"FAILED: {what!r}: {error!r}"[:3_000], file=sys.__stderr__, flush=True)
    if EXAMPLES and tally.total() % 500 == 0:
        print(dict(tally), file=sys.__stderr__, flush=True)


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Counter[str]]:
    """How many inputs ended how; printed where more were wanted than in CI."""
    counts: Counter[str] = Counter()
    yield counts
    if EXAMPLES:
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{request.node.name}: {counts.total()} tried: {dict(sorted(counts.items()))}")
    assert not counts["failed"]
