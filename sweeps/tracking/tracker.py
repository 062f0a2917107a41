"""The writer to MLflow: an experiment per recipe, a run per sweep, and a child run per trial."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlflow.entities import Dataset, DatasetInput, LifecycleStage, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from sweeps.store.sweep import Sweep
from sweeps.text.secrets import redacted
from sweeps.tracking.run_tags import NOTE, charted, infinite, person, source_tags
from sweeps.tracking.store import TROUBLE, open_experiment, reason_of, refusal, settled_uri

_PAUSE_S = 20.0
"""Seconds without a call after a failed one, so that a dead store does not slow the sweep down."""

_MODEL_TYPE = "intents and slots"
"""Type of the LoggedModels."""

_BATCH = 1000
"""Metrics that MLflow takes in one request, at most."""
_MOST_RUNS = 50_000
"""Runs that MLflow returns in one request, at most."""

Sent = TypeVar("Sent")


@dataclass(frozen=True)
class Figures:
    """Metrics of a run at one step."""

    metrics: Mapping[str, float]
    step: int = 0
    model_id: str | None = None
    """Of the LoggedModel whose metrics they are too."""
    corpus: Dataset | None = None
    """The data set that a LoggedModel's metrics were measured on."""

    def metrics_at(self, now: int) -> list[Metric]:
        """Return what MLflow stores of them, at a time in milliseconds."""
        about: dict[str, Any] = {} if self.model_id is None else {"model_id": self.model_id}
        if self.corpus and self.model_id:
            about |= {"dataset_name": self.corpus.name, "dataset_digest": self.corpus.digest}
        finite = {key: float(value) for key, value in charted(self.metrics).items() if math.isfinite(value)}
        return [Metric(key, value, now, self.step, **about) for key, value in finite.items()]


class Tracker:
    """A writer of the runs of one experiment.

    A failed call is counted and reported once, and `sweeps.engine.finish` resends its content. The study and the
    sweep's folder are the truth, so a store that is away for an hour must not end a sweep.

    Args:
        uri: of the tracking store. A SQLite store is created here, by one process, before any other opens it.
        experiment: the recipe's name.
        artifacts: folder for the artifacts of a new experiment in a database store; a server has its own.
        say: called with a line when the store stops answering, and when it answers again.
        new: whether to create a store and an experiment that are missing; if False, raise.

    Attributes:
        failures: the number of failed calls.

    Raises:
        UserError: if the store cannot be opened.
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
        self.client, self.experiment_id = open_experiment(uri, experiment, artifacts, new=new)
        self.failures = 0
        self._places: dict[str, str] = {}  # where the artifacts of the open runs are
        self._say, self._quiet_until, self._failing = say, 0.0, False

    def holds(self, run_id: str) -> bool:
        """Return True if the store holds this run, and no one has deleted it.

        Raises:
            UserError: if the store does not answer.
        """
        try:
            stage: str = self.client.get_run(run_id).info.lifecycle_stage
        except TROUBLE as error:
            if getattr(error, "error_code", None) != "RESOURCE_DOES_NOT_EXIST":
                raise refusal(self.uri, error) from None
            return False
        return stage == LifecycleStage.ACTIVE

    def start(
        self,
        name: str,
        *,
        params: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: str | None = None,
        note: str | None = None,
    ) -> str | None:
        """Open a run; return its id, or None if the store did not take it.

        Args:
            note: the run's description, in Markdown.
        """
        nesting = {"mlflow.parentRunId": parent} if parent else {}
        described = {NOTE: redacted(note)} if note is not None else {}

        def send() -> str:
            every = {**tags, **nesting, **described, **source_tags()}
            every |= {"mlflow.user": person()}
            run: Run = self.client.create_run(self.experiment_id, _now(), run_name=name, tags=every)
            self._places[str(run.info.run_id)] = run.info.artifact_uri
            return str(run.info.run_id)

        run_id = self._sent(send)
        if run_id is not None:
            self.log(run_id, params=params)
        return run_id

    def candidates(
        self, run_id: str | None, names: Mapping[int, str], tags: Mapping[str, str], *, new: bool
    ) -> dict[int, str]:
        """Create a LoggedModel for each kept epoch of a run, unless the run has it; return their ids by epoch.

        Args:
            names: of the candidates, such as `2@3`, by epoch.
            new: True if the run can have none yet.
        """
        found: dict[int, str] = {}

        def send(run: str) -> None:
            of_run = f"source_run_id = '{run}'"
            made = [] if new else self.client.search_logged_models([self.experiment_id], of_run)
            known = {model.name: str(model.model_id) for model in made}
            for step, name in names.items():
                if name not in known:
                    told = {**tags, "epoch": str(step)}
                    model = self.client.create_logged_model(self.experiment_id, name, run, told, model_type=_MODEL_TYPE)
                    known[name] = str(self.client.finalize_logged_model(model.model_id, "READY").model_id)
                found[step] = known[name]

        self._on_run(run_id, send)
        return found

    def candidate_of(self, run_id: str, epoch: int) -> str | None:
        """Return the id of the LoggedModel of a run after an epoch; None if there is none."""
        wanted = f"source_run_id = '{run_id}'"
        found = self._sent(lambda: self.client.search_logged_models([self.experiment_of(run_id)], wanted))
        return next((str(one.model_id) for one in found or () if one.tags.get("epoch") == str(epoch)), None)

    def log(
        self,
        run_id: str | None,
        *figures: Figures,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log parameters, metrics, without NaN, and tags in one request. Of a metric at one step the last value counts.

        An infinite metric becomes a tag, since MLflow would store 1.8e308.
        """
        now = _now()
        metrics = list({(m.key, m.step): m for one in figures for m in one.metrics_at(now)}.values())
        every = {key: value for one in figures for key, value in infinite(one.metrics).items()}
        every |= {key: redacted(str(value)) for key, value in (tags or {}).items()}
        batches = [metrics[i : i + _BATCH] for i in range(0, len(metrics), _BATCH)] or [[]]
        for batch in batches[:-1]:
            self._on_run(run_id, functools.partial(self.client.log_batch, metrics=batch))
        last, shown, told = batches[-1], _shown(params or {}), [RunTag(key, value) for key, value in every.items()]
        if last or shown or told:
            send = functools.partial(self.client.log_batch, metrics=last, params=shown, tags=told)
            self._on_run(run_id, send)

    def log_missing(
        self,
        run_id: str | None,
        steps: Mapping[int, Mapping[str, float]],
        models: Mapping[int, str] | None = None,
    ) -> None:
        """Log those metrics of several steps that the run lacks, so that a history holds each step once.

        Args:
            models: the ids of the LoggedModels whose metrics they are too, by step.
        """
        tags = {key: value for metrics in steps.values() for key, value in infinite(metrics).items()}
        steps = {step: charted(metrics) for step, metrics in steps.items()}

        def send(run: str) -> None:
            for key in sorted({key for metrics in steps.values() for key in metrics}):
                have = {metric.step for metric in self.client.get_metric_history(run, key)}
                for step, metrics in steps.items():
                    if key in metrics and step not in have and math.isfinite(metrics[key]):
                        of = (models or {}).get(step)
                        self.client.log_metric(run, key, metrics[key], _now(), step, model_id=of)
            for key, value in tags.items():
                self.client.set_tag(run, key, value)

        self._on_run(run_id, send)

    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self.log(run_id, tags=tags)

    def keep_view(self, name: str, view: str) -> None:
        """Keep a view of the experiment's runs that MLflow's UI opens under this name."""
        self._sent(lambda: self.client.set_experiment_tag(self.experiment_id, f"mlflow.sharedViewState.{name}", view))

    def inputs(self, run_id: str | None, corpora: Sequence[DatasetInput]) -> None:
        """Log the corpora that a run reads. MLflow skips those that the run has already."""
        self._on_run(run_id, lambda run: self.client.log_inputs(run, list(corpora)))

    def artifact(self, run_id: str | None, path: Path, folder: str | None = None) -> None:
        """Copy a file to the run's artifacts, if it exists."""
        if path.is_file():
            self._on_run(run_id, lambda run: self._artifacts_of(run).log_artifact(str(path), folder))

    def _artifacts_of(self, run: str) -> ArtifactRepository:
        """Return the place of a run's artifacts.

        MLflow's client would ask the store for it, and keep the places of the last thousand runs, each with threads.
        """
        place = self._places.get(run) or self.client.get_run(run).info.artifact_uri
        return get_artifact_repository(place, tracking_uri=self.uri)

    def reopen(self, run_id: str | None, params: Mapping[str, Any] | None = None) -> None:
        """Set an ended or interrupted run to running, and log those of `params` that it lacks."""

        def send(run: str) -> None:
            if params:
                have = self.client.get_run(run).data.params
                self.client.log_batch(run, params=[one for one in _shown(params) if one.key not in have])
            self.client.update_run(run, status="RUNNING")

        self._on_run(run_id, send)
        self.tag(run_id, {"state": "running"})

    def end(self, run_id: str | None, status: str = "FINISHED") -> None:
        """End a run: FINISHED, FAILED or KILLED."""
        self._places.pop(run_id or "", None)
        self._on_run(run_id, lambda run: self.client.set_terminated(run, status, _now()))

    def _below(self, parent: str, which: str) -> list[Run] | None:
        """Return the runs below `parent` that a filter of MLflow selects; None if the store does not answer."""
        wanted = f"tags.`mlflow.parentRunId` = '{parent}' and {which}"
        return self._sent(lambda: list(self.client.search_runs([self.experiment_id], wanted, max_results=_MOST_RUNS)))

    def find(self, parent: str, name: str) -> str | None:
        """Return the run of this name below `parent`; None if there is none.

        A run has its name from its creation. Its parameters are sent afterwards, and may be missing.
        """
        found = self._below(parent, f"attributes.run_name = '{name}'")
        return str(found[0].info.run_id) if found else None

    def trial_runs(self, parent: str) -> dict[str, Run] | None:
        """Return the runs of trials below `parent` by name; None if the store does not answer.

        Of two runs of a name the one that still runs was created by a call that was answered too late.
        """
        found = self._below(parent, "tags.role = 'trial'")
        if found is None:
            return None
        found = sorted(found, key=lambda run: run.info.status != "RUNNING")
        return {str(run.info.run_name): run for run in found}

    def delete_strays(self, parent: str, known: Collection[str]) -> None:
        """Delete running trials below `parent` whose ids are not `known`: their creation was answered too late."""
        for run in self._below(parent, "tags.role = 'trial' and attributes.status = 'RUNNING'") or ():
            if run.info.run_id not in known:
                self._on_run(run.info.run_id, self.client.delete_run)

    def marked(self, parent: str, tag: str) -> set[str]:
        """Return the runs below `parent` whose `tag` is `true`."""
        return {str(run.info.run_id) for run in self._below(parent, f"tags.{tag} = 'true'") or ()}

    def experiment_of(self, run_id: str) -> str:
        """Return the id of a run's experiment, or of this tracker's if the store does not answer."""
        found = self._sent(lambda: self.client.get_run(run_id))
        return str(found.info.experiment_id) if found else self.experiment_id

    def tag_model(self, uri: str, tags: Mapping[str, str]) -> None:
        """Set tags of a registered version, `models:/NAME/VERSION`, if it still exists."""
        name, _, version = uri.removeprefix("models:/").rpartition("/")

        def send() -> None:
            try:
                for key, value in tags.items():
                    self.client.set_model_version_tag(name, version, key, value)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise

        self._sent(send)

    def try_now(self) -> None:
        """End the pause after a failure."""
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
        except TROUBLE as error:
            self.failures += 1
            self._quiet_until = time.monotonic() + _PAUSE_S
            if not self._failing:
                reason = reason_of(self.uri, error)
                self._say(f"MLflow takes nothing at the moment ({reason}); the sweep goes on without it")
            self._failing = True
            return None
        if self._failing:
            self._say("MLflow answers again")
        self._failing = False
        return answer


def _now() -> int:
    """Return the time in milliseconds, as MLflow counts it."""
    return int(time.time() * 1000)


def _shown(params: Mapping[str, Any]) -> list[Param]:
    return [Param(key, redacted(str(value))[:6000]) for key, value in params.items()]


def tracker_of(
    sweep: Sweep, uri: str | None = None, say: Callable[[str], None] = lambda line: None, *, new: bool = False
) -> Tracker:
    """Return a writer of a sweep's runs, as `Tracker`; `uri` is that of their store, if it has moved."""
    record = sweep.record
    return Tracker(uri or record.tracking_uri, record.recipe, sweep.artifacts, say, new=new)
