"""MLflow: an experiment a recipe, a parent run a sweep, a child run a trial. One process writes: the sweep's driver."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import math
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
from mlflow.entities import Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from edp.spec import UserError
from trainables.spec import TrialSpec

for _chatty in ("mlflow", "alembic"):  # a line for each of dozens of migrations of a new store
    logging.getLogger(_chatty).setLevel(logging.WARNING)

_PACKAGES = ("ray", "torch", "transformers", "optuna", "mlflow")


def default_tracking_uri(storage: Path) -> str:
    """A SQLite store beside the sweeps."""
    return f"sqlite:///{(storage / 'mlflow.db').resolve()}"


@functools.cache
def environment_tags() -> dict[str, str]:
    """Git commit (where there is one) and versions of what the numbers depend on."""
    tags = {f"version.{name}": importlib.metadata.version(name) for name in _PACKAGES}
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return tags | ({"git_commit": commit.stdout.strip()} if commit.returncode == 0 else {})


def trial_tags(sweep: str, spec: TrialSpec) -> dict[str, str]:
    """Tags of every run that trains."""
    return {
        **environment_tags(),
        "sweep": sweep,
        "corpus": spec.corpus.name,
        "model": spec.model.kind,
        "method": spec.training.method,
        "state": "running",
    }


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names; None is left out."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = value
    return found


class Tracker:
    """Writes runs of one experiment.

    Args:
        uri: of the tracking store; a SQLite one is created here, by one process, before anybody else opens it.
        experiment: the recipe's name.
        artifacts: folder for artifacts of an experiment that is new in a database store; a server has its own.

    Raises:
        UserError: when the store cannot be opened.
    """

    def __init__(self, uri: str, experiment: str, artifacts: Path) -> None:
        self.uri = uri
        try:
            if uri.startswith(("http://", "https://")):
                # MLflow itself tries for minutes; a store that answers nothing is better known at once.
                requests.get(uri, timeout=10)
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            found = self.client.get_experiment_by_name(experiment) or self._create(experiment, artifacts)
        except (MlflowException, SQLAlchemyError, requests.RequestException, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"tracking-uri = {uri!r} cannot be opened; allowed: sqlite:///FILE, a database URL, or "
                f"http(s)://SERVER ({reason[:200]})"
            ) from None
        self.experiment_id = found.experiment_id

    def _create(self, experiment: str, artifacts: Path) -> Experiment:
        place = None if self.uri.startswith("http") else (artifacts / experiment).resolve().as_uri()
        number = self.client.create_experiment(
            experiment,
            artifact_location=place,
            tags={"mlflow.experimentKind": "custom_model_development"},
        )
        return self.client.get_experiment(number)

    def start(
        self,
        name: str,
        *,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: str | None = None,
    ) -> str:
        """Opens a run and returns its id."""
        nesting = {"mlflow.parentRunId": parent} if parent else {}
        run: Run = self.client.create_run(
            self.experiment_id, run_name=name, tags={**tags, **nesting, "mlflow.user": "edp-sweep"}
        )
        self.client.log_batch(run.info.run_id, params=[Param(key, str(value)[:6000]) for key, value in params.items()])
        return str(run.info.run_id)

    def log(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        """One batch of metrics; NaN is left out. Infinity is stored as the largest double, as MLflow does."""
        now = int(time.time() * 1000)
        batch = [Metric(key, float(v), now, step) for key, v in metrics.items() if not math.isnan(float(v))]
        if batch:
            self.client.log_batch(run_id, metrics=batch)

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        self.client.log_batch(run_id, tags=[RunTag(key, str(value)) for key, value in tags.items()])

    def artifact(self, run_id: str, path: Path, folder: str | None = None) -> None:
        """Copies a file to the run's artifacts, where it exists."""
        if path.is_file():
            self.client.log_artifact(run_id, str(path), folder)

    def reopen(self, run_id: str) -> None:
        """Makes an ended or interrupted run a running one again."""
        self.client.update_run(run_id, status="RUNNING")
        self.tag(run_id, {"state": "running"})

    def end(self, run_id: str, status: str = "FINISHED") -> None:
        """Closes a run: FINISHED, FAILED or KILLED."""
        self.client.set_terminated(run_id, status)
