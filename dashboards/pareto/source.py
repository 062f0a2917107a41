"""The sweep of the page, read again when it has changed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from dashboards.pareto.data import PageData, snapshot
from edp.spec import UserError
from sweeps.store.journal import CONFIRM
from sweeps.store.picks import ORIGIN
from sweeps.store.plans import RELEASE
from sweeps.store.sweep import Sweep
from sweeps.tracking.store import check_there

Found = TypeVar("Found")

_COMPUTED = 64
"""The largest number of computed values that are kept, some of which are charts of a megabyte."""


def _state(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:  # missing
        return "-"
    return f"{found.st_mtime_ns}:{found.st_size}"


class Source:
    """A sweep that is read again when it has changed, at most every `seconds`. Safe to share between threads.

    If the sweep cannot be read any more, the last snapshot stays, with the problem added.
    """

    def __init__(self, sweep: Sweep, seconds: float = 3.0) -> None:
        self.sweep = sweep
        self._seconds, self._lock = seconds, threading.Lock()
        self._read_at, self._stamp = -math.inf, ""
        self._kept: PageData | None = None
        self._experiment: str | None = None
        self._computed: tuple[PageData | None, dict[Any, Any]] = (None, {})

    def _stamp_now(self) -> str:
        folder = self.sweep.folder
        files = [folder / name for name in ("sweep.json", "study.db", RELEASE)]
        # Later trainings with new seeds, and final ones: their steps count in the sweep's ε.
        trained = [*folder.glob(f"{CONFIRM}/*/*/*.json"), *folder.parent.glob(f"train-*/{ORIGIN}")]
        trained += folder.parent.glob("train-*/ledger.json")
        stamp = " ".join(_state(file) for file in (*files, *sorted(trained)))
        stamp += f" {self.sweep.state}"  # a driver that dies changes no file
        # A study in a shared database changes no file here, so its stamp changes all the time.
        whole = files[1].is_file()
        return stamp if whole else f"{stamp} {time.monotonic():.0f}"

    def read(self) -> tuple[str, PageData]:
        """Return a version that changes when the sweep does, and the sweep's snapshot.

        Raises:
            UserError: if it cannot be read, and never could.
        """
        with self._lock:
            now = time.monotonic()
            if self._kept is None or now - self._read_at >= self._seconds:
                stamp = self._stamp_now()
                if self._kept is None or stamp != self._stamp:
                    self._kept = self._snapshot(self._kept)
                self._stamp, self._read_at = stamp, time.monotonic()
            return self._stamp, self._kept

    def computed(self, function: Callable[..., Found], *words: Any) -> Found:
        """Return `function(snapshot, *words)`, computed once while the sweep does not change."""
        snapshot = self.read()[1]
        of, kept = self._computed  # together: another thread may replace both meanwhile
        if of is not snapshot or len(kept) >= _COMPUTED:
            kept = {}
            self._computed = (snapshot, kept)
        if (function, words) not in kept:
            kept[function, words] = function(snapshot, *words)
        found: Found = kept[function, words]
        return found

    def _snapshot(self, before: PageData | None) -> PageData:
        try:
            return snapshot(self.sweep)
        except UserError as error:
            if before is None:
                raise
            return before.changed(problem=str(error))

    def run_page(self, mlflow: str, run_id: str | None, tracking_uri: str | None = None) -> str:
        """Return the address of a run in the MLflow UI at `mlflow`; `mlflow` itself if the store does not answer."""
        record = self.sweep.record
        experiment = self._experiment_id(tracking_uri or record.tracking_uri)
        if experiment is None:
            return mlflow
        # By default MLflow's UI opens on agents and traces.
        return f"{mlflow}/#/experiments/{experiment}/runs/{run_id or record.run_id}?workflowType=machine_learning"

    def _experiment_id(self, uri: str) -> str | None:
        """Return the id of the sweep's experiment; None if the store does not answer."""
        try:
            if self._experiment is None:
                check_there(uri)
                self._experiment = str(MlflowClient(uri).get_run(self.sweep.record.run_id).info.experiment_id)
        except (MlflowException, SQLAlchemyError, TypeError, UserError):
            return None
        return self._experiment
