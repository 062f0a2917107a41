"""MLflow: an experiment a recipe, a parent run a sweep, a child run a trial. One process writes: the sweep's driver."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
from mlflow.entities import DatasetInput, Experiment, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sqlalchemy.exc import SQLAlchemyError

from edp.spec import UserError
from sweeps.formatting.secrets import redacted
from sweeps.tracking.dead_runs import end_dead_runs, owner_tags
from sweeps.tracking.run_tags import NOTE, charted, infinite, person, source_tags
from sweeps.tracking.store import check_there, reason_of, refusal, settled_uri

for _chatty in ("mlflow", "alembic"):  # a line for each of dozens of migrations of a new store
    logging.getLogger(_chatty).setLevel(logging.WARNING)
logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # the traceback of what we say in a line

# MLflow's own patience is minutes a call. What a sweep cannot send it sends later (`sweeps.tracking.backfill`).
for _name, _value in (("MAX_RETRIES", "1"), ("TIMEOUT", "10"), ("BACKOFF_FACTOR", "1")):
    os.environ.setdefault(f"MLFLOW_HTTP_REQUEST_{_name}", _value)

# After a failure nothing is sent for so long, so that a dead store does not slow the sweep down.
_PAUSE_S = 20.0

_TROUBLE = (MlflowException, SQLAlchemyError, requests.RequestException, OSError)

Sent = TypeVar("Sent")


class Tracker:
    """Writes runs of one experiment.

    What the store does not take is left out and counted, said once, and sent again by `sweeps.tracking.backfill`: the
    study and the sweep's folder are the truth, and a store that is gone for an hour must not end a sweep.

    Args:
        uri: of the tracking store; a SQLite one is created here, by one process, before anybody else opens it.
        experiment: the recipe's name.
        new: whether store and experiment may be made here; else they hold runs already, or are the wrong ones.
        artifacts: folder for artifacts of an experiment that is new in a database store; a server has its own.
        say: told when the store does not answer, and when it does again.

    Attributes:
        failures: how many calls were not taken.

    Raises:
        UserError: when the store cannot be opened.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        artifacts: Path,
        say: Callable[[str], None] = lambda line: None,
        *,
        new: bool = True,
    ) -> None:
        self.uri = uri = settled_uri(None, uri)
        if not new:
            check_there(uri)
        self._storage = artifacts.parent
        self.failures = 0
        self._say, self._quiet_until, self._failing = say, 0.0, False
        try:
            if uri.startswith(("http://", "https://")):
                # MLflow itself tries for minutes; a store that answers nothing is better known at once.
                requests.get(uri, timeout=10)
            self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)
            found = self.client.get_experiment_by_name(experiment)
            if found is None and not new:
                raise UserError(
                    f"tracking-uri = {redacted(uri)!r} holds no experiment {experiment!r}; allowed: the store that "
                    "holds the runs (--tracking-uri, where it has moved)"
                )
            found = found or self._create(experiment, artifacts)
        except UserError:
            raise
        except Exception as error:  # MLflow's, of its plugins, of a driver: whatever they stumble over
            raise refusal(uri, error) from None
        self.experiment_id = found.experiment_id
        with suppress(*_TROUBLE):
            for run_id in end_dead_runs(self.client, self._storage):
                say(f"MLflow run {run_id} is ended as KILLED: the process that had started it is gone")

    def _create(self, experiment: str, artifacts: Path) -> Experiment:
        place = None if self.uri.startswith("http") else (artifacts / experiment).resolve().as_uri()
        number = self.client.create_experiment(
            experiment,
            artifact_location=place,
            tags={
                "mlflow.experimentKind": "custom_model_development",
                # What the charts of its runs begin with.
                "mlflow.experiment.primaryMetric.name": "ser",
                "mlflow.experiment.primaryMetric.greaterIsBetter": "False",
            },
        )
        return self.client.get_experiment(number)

    def check_holds(self, run_id: str) -> None:
        """Refuses a store that has not this run: it is another sweep's.

        Raises:
            UserError: naming the store.
        """
        try:
            self.client.get_run(run_id)
        except _TROUBLE as error:
            if getattr(error, "error_code", None) != "RESOURCE_DOES_NOT_EXIST":
                raise refusal(self.uri, error) from None
            raise UserError(
                f"tracking-uri = {redacted(self.uri)!r} holds no run {run_id}; allowed: the store that holds the runs "
                "(--tracking-uri, where it has moved)"
            ) from None

    def start(
        self,
        name: str,
        *,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: str | None = None,
        note: str | None = None,
    ) -> str | None:
        """Opens a run and returns its id; None when the store did not take it.

        Args:
            note: its description, in Markdown.
        """
        nesting = {"mlflow.parentRunId": parent} if parent else {}
        described = {NOTE: redacted(note)} if note is not None else {}
        shown = [Param(key, redacted(str(value))[:6000]) for key, value in params.items()]

        def send() -> str:
            every = {
                **tags,
                **nesting,
                **described,
                **owner_tags(self._storage),
                **source_tags(),
                "mlflow.user": person(),
            }
            run: Run = self.client.create_run(self.experiment_id, run_name=name, tags=every)
            self.client.log_batch(run.info.run_id, params=shown)
            return str(run.info.run_id)

        return self._sent(send)

    def log(self, run_id: str | None, metrics: Mapping[str, float], step: int = 0) -> None:
        """One batch of metrics; NaN is left out, and what is infinite is a tag: MLflow would make 1.8e308 of it."""
        now = int(time.time() * 1000)
        batch = [Metric(key, float(v), now, step) for key, v in charted(metrics).items() if math.isfinite(v)]
        tags = [RunTag(key, value) for key, value in infinite(metrics).items()]
        if batch or tags:
            self._on_run(run_id, lambda run: self.client.log_batch(run, metrics=batch, tags=tags))

    def log_missing(self, run_id: str | None, steps: Mapping[int, Mapping[str, float]]) -> None:
        """The metrics of several steps, less what the run has already: a history holds each step once."""

        tags = {key: value for metrics in steps.values() for key, value in infinite(metrics).items()}
        steps = {step: charted(metrics) for step, metrics in steps.items()}

        def send(run: str) -> None:
            for key in sorted({key for metrics in steps.values() for key in metrics}):
                have = {metric.step for metric in self.client.get_metric_history(run, key)}
                for step, metrics in steps.items():
                    if key in metrics and step not in have and math.isfinite(metrics[key]):
                        self.client.log_metric(run, key, metrics[key], step=step)
            for key, value in tags.items():
                self.client.set_tag(run, key, value)

        self._on_run(run_id, send)

    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None:
        """Sets tags."""
        batch = [RunTag(key, redacted(str(value))) for key, value in tags.items()]
        self._on_run(run_id, lambda run: self.client.log_batch(run, tags=batch))

    def inputs(self, run_id: str | None, corpora: Sequence[DatasetInput]) -> None:
        """Names the corpora that a run reads; those that it has named already are not named twice."""
        self._on_run(run_id, lambda run: self.client.log_inputs(run, list(corpora)))

    def artifact(self, run_id: str | None, path: Path, folder: str | None = None) -> None:
        """Copies a file to the run's artifacts, where it exists."""
        if path.is_file():
            self._on_run(run_id, lambda run: self.client.log_artifact(run, str(path), folder))

    def reopen(self, run_id: str | None) -> None:
        """Makes an ended or interrupted run a running one again."""
        self._on_run(run_id, lambda run: self.client.update_run(run, status="RUNNING"))
        self.tag(run_id, {"state": "running", **owner_tags(self._storage)})

    def end(self, run_id: str | None, status: str = "FINISHED") -> None:
        """Closes a run: FINISHED, FAILED or KILLED."""
        self._on_run(run_id, lambda run: self.client.set_terminated(run, status))

    def find(self, parent: str, role: str, number: int | None = None) -> str | None:
        """The run below `parent` that has this role, of a trial that of this number; None where there is none."""
        wanted = f"tags.`mlflow.parentRunId` = '{parent}' and tags.role = '{role}'"
        if number is not None:
            wanted += f" and params.trial = '{number}'"
        found = self._sent(lambda: self.client.search_runs([self.experiment_id], wanted, max_results=1))
        return str(found[0].info.run_id) if found else None

    def marked(self, parent: str, tag: str) -> set[str]:
        """The runs below `parent` of which `tag` is `true`."""
        wanted = f"tags.`mlflow.parentRunId` = '{parent}' and tags.{tag} = 'true'"
        found = self._sent(lambda: self.client.search_runs([self.experiment_id], wanted, max_results=1000))
        return {str(run.info.run_id) for run in found or ()}

    def experiment_of(self, run_id: str) -> str:
        """The id of the experiment that a run is in; this tracker's, where the store does not say."""
        found = self._sent(lambda: self.client.get_run(run_id))
        return str(found.info.experiment_id) if found else self.experiment_id

    def tag_model(self, uri: str, tags: Mapping[str, str]) -> None:
        """Sets tags of a registered version, `models:/NAME/VERSION`, where it is still there."""
        name, _, version = uri.removeprefix("models:/").rpartition("/")

        def send() -> None:
            try:
                for key, value in tags.items():
                    self.client.set_model_version_tag(name, version, key, value)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":  # somebody has deleted it
                    raise

        self._sent(send)

    def try_now(self) -> None:
        """Ends the pause after a failure."""
        self._quiet_until = 0.0

    def _on_run(self, run_id: str | None, send: Callable[[str], object]) -> None:
        if run_id is None:
            self.failures += 1
        else:
            self._sent(lambda: send(run_id))

    def _sent(self, send: Callable[[], Sent]) -> Sent | None:
        if time.monotonic() < self._quiet_until:
            self.failures += 1
            return None
        try:
            answer = send()
        except _TROUBLE as error:
            self.failures += 1
            self._quiet_until = time.monotonic() + _PAUSE_S
            if not self._failing:
                self._say(f"MLflow takes nothing at the moment ({self._reason(error)}); the sweep goes on without it")
            self._failing = True
            return None
        if self._failing:
            self._say("MLflow answers again")
        self._failing = False
        return answer

    def _reason(self, error: Exception) -> str:
        return reason_of(self.uri, error)
